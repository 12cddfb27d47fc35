//! Whether a mask that was read again is the thread's own, perch's doing, the kernel's, or another's.

use super::{super::fit::explains, Doubt, Moment, Owned, Past, Place};
use perch_core::{PuSet, Unmanaged};

/// Observations after which a PU or CPU set that explains a mask must have changed.
const GOING: u64 = 3;

/// What a judgement came to, for the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ownership) enum Verdict {
    Same,
    /// The kernel changed a mask that is perch's doing.
    Refitted,
    /// Another process set the mask, unless a change that perch has not seen yet explains it.
    Doubted,
    /// Another process set the mask.
    Foreign,
}

impl Owned {
    /// Judges a mask that was read again. `allowed` asks what this very thread may use.
    pub(in crate::ownership) fn judge(
        &mut self,
        mask: &PuSet,
        place: &Place,
        moment: Moment,
        take_over: bool,
        allowed: impl Fn() -> Option<PuSet>,
    ) -> Verdict {
        if self.doubt.is_some() {
            return self.judge_doubted(mask, place, moment, allowed);
        }
        if *mask == self.current {
            let whole = place.whole && *mask == place.default;
            let follows = match &self.asked {
                Some(asked) => whole || kernels(asked, mask, place, &allowed),
                None => !self.whole || whole || explains(&place.default, mask, &place.allowed),
            };
            let left_so = self.struck.as_ref() == Some(mask);
            if self.unmanaged.is_some() || follows || left_so {
                return Verdict::Same;
            }
            // It did not follow its CPU set: another process has placed it, or the kernel is about to change it.
            self.doubt_of(mask, place, moment, allowed());
            return Verdict::Doubted;
        }
        let before = std::mem::replace(&mut self.current, mask.clone());
        match (&self.asked, self.unmanaged) {
            (Some(asked), None) => {
                // Before Linux 6.2 a changed CPU set gives every thread the whole of it.
                let whole = place.fresh && place.whole && *mask == place.default;
                if whole || kernels(asked, mask, place, &allowed) {
                    return Verdict::Refitted;
                }
                self.doubt_of(mask, place, moment, allowed());
                Verdict::Doubted
            }
            (None, None) => {
                if *mask == place.default && place.whole {
                    // It counts as not placed now, whatever it was before.
                    self.before = place.default.clone();
                    self.whole = true;
                    return Verdict::Same;
                }
                if *mask == self.before || explains(&self.before, mask, &place.allowed) {
                    return Verdict::Same;
                }
                if !self.touched && take_over {
                    self.before = mask.clone();
                    self.whole = false;
                    return Verdict::Same;
                }
                let why = if self.touched {
                    Unmanaged::ChangedByOthers
                } else {
                    Unmanaged::PlacedBefore
                };
                self.give_up(why, moment);
                Verdict::Foreign
            }
            (_, Some(Unmanaged::PlacedBefore | Unmanaged::Unknown))
                if !self.touched && kernels(&self.before, mask, place, &allowed) =>
            {
                // The kernel derived this from a mask that another process set, and may remember that one: it still
                // belongs to that process.
                Verdict::Same
            }
            (_, Some(Unmanaged::PlacedBefore | Unmanaged::Unknown))
                if !self.touched && place.whole && *mask == place.default =>
            {
                // The process that placed it has let it go again, and perch never touched it.
                *self = Self::free(self.pid, mask, place.default.clone(), true);
                Verdict::Foreign
            }
            (_, Some(Unmanaged::NotPermitted)) if self.asked.is_some() => {
                // Still perch's mask to restore, which needs more privileges, unless the mask has changed since.
                let asked = self.asked.as_ref().unwrap_or(&before);
                if kernels(asked, mask, place, allowed) {
                    Verdict::Same
                } else {
                    self.give_up(Unmanaged::ChangedByOthers, moment);
                    Verdict::Foreign
                }
            }
            (_, Some(why)) => {
                let why = match why {
                    Unmanaged::Unknown => Unmanaged::ChangedByOthers,
                    why => why,
                };
                self.give_up(why, moment);
                Verdict::Foreign
            }
        }
    }

    /// Judges a thread again that was given up for now, with the mask that it has.
    fn judge_doubted(
        &mut self,
        mask: &PuSet,
        place: &Place,
        moment: Moment,
        allowed: impl Fn() -> Option<PuSet>,
    ) -> Verdict {
        self.current = mask.clone();
        let Some(doubt) = &mut self.doubt else {
            return Verdict::Same;
        };
        doubt.moved = doubt.moved
            || place.fresh
            || doubt.allowed != place.allowed
            || doubt.own.is_some() && allowed().is_some_and(|own| doubt.own != Some(own));
        let followed = doubt.whole && *mask == place.default && *mask != doubt.mask;
        // If nothing changed that the kernel could have followed, another process set the mask in doubt, and this one too,
        // even if it is the one that perch had set.
        let ours = doubt.moved
            && self.asked.as_ref().map_or(followed, |asked| {
                let whole = place.fresh && place.whole && *mask == place.default;
                whole && doubt.mask == *mask
                    || kernels(asked, mask, place, &allowed)
                        && (kernels(asked, &doubt.mask, place, &allowed)
                            || !kernels(&doubt.mask, mask, place, &allowed))
            });
        if ours {
            self.before = doubt.before.clone();
            self.whole = doubt.whole;
            self.doubt = None;
            self.unmanaged = None;
            return Verdict::Refitted;
        }
        if moment.observation < doubt.until {
            if kernels(&doubt.mask, mask, place, &allowed) {
                return Verdict::Same;
            }
            doubt.mask = mask.clone();
            return Verdict::Doubted;
        }
        let seen = doubt.seen;
        let at = seen.or(moment.at);
        self.give_up(Unmanaged::ChangedByOthers, Moment { at, ..moment });
        Verdict::Foreign
    }

    /// Nothing explains this mask as yet.
    /// `own` is what this very thread may use.
    pub(in crate::ownership) fn doubt_of(
        &mut self,
        mask: &PuSet,
        place: &Place,
        moment: Moment,
        own: Option<PuSet>,
    ) {
        self.doubt = Some(Doubt {
            mask: mask.clone(),
            allowed: place.allowed.clone(),
            own,
            moved: place.fresh,
            seen: moment.at,
            until: moment.observation + GOING,
            before: self.before.clone(),
            whole: self.whole,
        });
        self.unmanaged = Some(Unmanaged::ChangedByOthers);
    }

    /// Another process set the mask that it has, since that moment at the latest. Masks that it passed on before are
    /// not affected.
    fn give_up(&mut self, why: Unmanaged, since: Moment) {
        let span = self.since.zip(since.at);
        self.creators = None;
        if self.is_foreign() {
            self.replaced = Some((self.before.clone(), since));
        }
        self.unmanaged = Some(why);
        self.past.extend(self.asked.take().map(|mask| Past {
            mask,
            before: self.before.clone(),
            whole: self.whole,
            span,
            observation: since.observation,
        }));
        self.doubt = None;
        self.before = self.current.clone();
        self.whole = false;
    }
}

/// Whether the kernel can have made `mask` of `asked`, by what the thread's process may use or else the thread itself.
fn kernels(
    asked: &PuSet,
    mask: &PuSet,
    place: &Place,
    allowed: impl Fn() -> Option<PuSet>,
) -> bool {
    explains(asked, mask, &place.allowed)
        || allowed().is_some_and(|allowed| explains(asked, mask, &allowed))
}
