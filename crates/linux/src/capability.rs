//! What to tell users who lack a capability.

/// How to give a capability to some users only: any user who may run a file that has it can use it on all users'
/// threads.
pub fn advice(capability: &str) -> String {
    let upper = capability.to_uppercase();
    let lower = capability.to_lowercase();
    format!(
        "give {upper} to those alone who need it: to a group by a copy of perch with that group and mode 0750 (`setcap \
         {lower}+ep` on it), or to a service or shell as an ambient capability (systemd's `AmbientCapabilities={upper}`, \
         `capsh --addamb={lower}`); a perch that all users may run must not have it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_restricts_it_to_those_who_need_it() {
        let text = advice("cap_sys_nice");
        for word in [
            "0750",
            "AmbientCapabilities=CAP_SYS_NICE",
            "must not have it",
        ] {
            assert!(text.contains(word), "{text}");
        }
    }
}
