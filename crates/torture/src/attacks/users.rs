//! Other users: programs that become root, journals that lie, files that are no journals.

use super::Context;
use crate::{
    masks::pus,
    orders::Order,
    perch::{Perch, journals},
    puppet::Puppet,
    world::World,
};
use anyhow::{Context as _, Result};
use nix::{sys::stat::Mode, unistd::mkfifo};
use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
};

/// The user that runs perch, or that attacks.
const USER: u32 = 65_534;
/// Another user.
const OTHER: u32 = 65_533;

/// Where perch keeps its journals by itself.
fn own_directory(user: u32) -> PathBuf {
    match user {
        0 => "/run/perch".into(),
        user => format!("/tmp/perch-{user}").into(),
    }
}

pub fn attack(context: &mut Context) -> Result<()> {
    for _ in 0..context.rounds(8, 1, 20) {
        for kill in [false, true] {
            if !context.begin()? {
                return Ok(());
            }
            setuid(context, kill)?;
            context.end();
        }
        for login in [false, true] {
            if !context.begin()? {
                return Ok(());
            }
            elsewhere(context, login)?;
            context.end();
        }
        for of in [0, OTHER] {
            if !context.begin()? {
                return Ok(());
            }
            liar(context, of)?;
            context.end();
        }
        for (user, given) in [(0, true), (0, false), (USER, true), (USER, false)] {
            if !context.begin()? {
                return Ok(());
            }
            no_journals(context, user, given)?;
            context.end();
        }
    }
    Ok(())
}

fn fresh_directories(context: &Context) -> Result<()> {
    for user in [0, USER, OTHER] {
        context.sandbox.empty(&own_directory(user), user)?;
    }
    Ok(())
}

/// A user's victim, with a thread that perch may bind.
fn puppet_of(context: &Context, world: &mut World, user: u32) -> Result<(Puppet, i32)> {
    let mut command = context.sandbox.victim();
    command.uid(user).gid(user);
    let mut puppet = Puppet::start(command)?;
    world.process(puppet.pid, "main thread");
    let bound = world.thread(&mut puppet, "", "w0")?;
    Ok((puppet, bound))
}

/// A user's bound program becomes root's: root's plain `perch restore` undoes what the user's perch cannot.
fn setuid(context: &mut Context, kill: bool) -> Result<()> {
    let sandbox = context.sandbox;
    fresh_directories(context)?;
    let program = sandbox.room().join("setuid");
    if !program.exists() {
        fs::copy(&sandbox.program, &program)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755))?;
    }
    let mut world = World::new(sandbox);
    let (mut puppet, _) = puppet_of(context, &mut world, USER)?;
    let perch = Perch::new(sandbox).state(None).user(USER);
    let session = perch.attach(&[puppet.pid], &[])?;
    puppet.tell("", Order::Rename("wmain".to_owned()))?;
    if !context.await_bound(puppet.pid, &pus("0"), "setuid") {
        context.tally.notes.push(session.said());
        return Ok(());
    }
    let words = vec![program.to_string_lossy().into_owned(), "victim".to_owned()];
    puppet.tell("", Order::Exec(words))?;
    let done = if kill {
        session.kill()?
    } else {
        session.stop()?
    };
    context.tally.judge(&done, "setuid");
    let done = perch.restore()?;
    context.tally.judge(&done, "restore by the user");
    let left = journals(&own_directory(USER));
    let bound = world.changed();
    context.tally.hold(
        bound == 0 || !left.is_empty(),
        "journal removed, threads still bound",
        || format!("setuid: {}", done.text()),
    );
    let done = Perch::new(sandbox).state(None).restore()?;
    context.tally.judge(&done, "restore by root");
    world.check(&mut context.tally);
    let left = journals(&own_directory(USER));
    context.tally.hold(left.is_empty(), "journal left", || {
        format!("{left:?}: {}", done.text())
    });
    Ok(())
}

/// A user's perch is killed, and the user restores from another place: after a `login`, which has made a runtime directory
/// since, or with another runtime directory than before.
fn elsewhere(context: &mut Context, login: bool) -> Result<()> {
    let sandbox = context.sandbox;
    fresh_directories(context)?;
    let runtime = PathBuf::from(format!("/run/user/{USER}"));
    if runtime.exists() {
        fs::remove_dir_all(&runtime)?;
    }
    let other = sandbox.room().join("runtime");
    sandbox.empty(&other, USER)?;
    if !login {
        sandbox.empty(&runtime, USER)?;
    }
    let directory = if login {
        own_directory(USER)
    } else {
        runtime.join("perch")
    };
    let mut world = World::new(sandbox);
    let (puppet, bound) = puppet_of(context, &mut world, USER)?;
    let perch = Perch::new(sandbox).state(None).user(USER);
    let session = perch.attach(&[puppet.pid], &[])?;
    if context.await_bound(bound, &pus("0"), "elsewhere") {
        session.kill()?;
        let real = journals(&directory);
        context.tally.hold(!real.is_empty(), "no journal", || {
            format!("elsewhere: none in {}", directory.display())
        });
        let later = if login { &runtime } else { &other };
        sandbox.empty(later, USER)?;
        let name = format!("XDG_RUNTIME_DIR={}", later.display());
        let done = perch.behind(["env".to_owned(), name]).restore()?;
        context.tally.judge(&done, "restore from elsewhere");
        world.check(&mut context.tally);
        let left: Vec<_> = real.iter().filter(|path| path.exists()).collect();
        context.tally.hold(left.is_empty(), "journal left", || {
            format!("{left:?}: {}", done.text())
        });
    } else {
        context.tally.notes.push(session.said());
    }
    if runtime.exists() {
        fs::remove_dir_all(&runtime)?;
    }
    Ok(())
}

/// A user puts a valid journal into their own directory, but it names another user's threads.
fn liar(context: &mut Context, of: u32) -> Result<()> {
    let sandbox = context.sandbox;
    fresh_directories(context)?;
    sandbox.empty(&sandbox.state, of)?;
    let mut world = World::new(sandbox);
    let (mut puppet, bound) = puppet_of(context, &mut world, of)?;
    let mut perch = Perch::new(sandbox);
    if of != 0 {
        perch = perch.user(of);
    }
    let session = perch.attach(&[puppet.pid], &[])?;
    if !context.await_bound(bound, &pus("0"), "liar") {
        return Ok(());
    }
    session.kill()?;
    let journal = perch.left().into_iter().next().context("no journal")?;
    let forged = own_directory(USER).join(journal.file_name().context("no name")?);
    fs::copy(&journal, &forged)?;
    fs::remove_file(&journal)?;
    chown(&forged, Some(USER), Some(USER))?;
    // Its owner wants it there now.
    world.pin(&mut puppet, "w0", &pus("0"))?;
    for call in [
        &["restore"][..],
        &["run", "-q", "-p", "observe", "--", "true"],
    ] {
        let root = Perch::new(sandbox).state(None);
        let done = root
            .start(call.iter().copied())?
            .wait(crate::perch::PATIENCE)?;
        context.tally.judge(&done, "a forged journal");
        world.check(&mut context.tally);
    }
    Ok(())
}

/// Links, pipes, directories and files that cannot be read, among them one journal that is one.
fn no_journals(context: &mut Context, user: u32, given: bool) -> Result<()> {
    let sandbox = context.sandbox;
    fresh_directories(context)?;
    sandbox.empty(&sandbox.state, user)?;
    let directory = if given {
        sandbox.state.clone()
    } else {
        own_directory(user)
    };
    let mut world = World::new(sandbox);
    let (puppet, bound) = puppet_of(context, &mut world, user)?;
    let mut perch = Perch::new(sandbox).state(given.then_some(&directory));
    if user != 0 {
        perch = perch.user(user);
    }
    let session = perch.attach(&[puppet.pid], &[])?;
    let what = format!("user {user}, {}", directory.display());
    if !context.await_bound(bound, &pus("0"), &what) {
        return Ok(());
    }
    session.kill()?;
    let real = journals(&directory);
    clutter(&directory)?;
    // A new perch first, whose start is a restore too; it must start its program whatever lies there.
    let args = ["run", "-q", "-p", "observe", "--", "true"];
    let limited = perch.clone().behind(["prlimit", "--as=4294967296"]);
    let done = limited.start(args)?.wait(crate::perch::PATIENCE)?;
    context.tally.judge(&done, &format!("run: {what}"));
    context
        .tally
        .hold(done.code() == Some(0), "run refused", || {
            format!("{what}: {}", done.text())
        });
    let done = limited.restore()?;
    context.tally.judge(&done, &format!("restore: {what}"));
    world.check(&mut context.tally);
    let left: Vec<_> = real.iter().filter(|path| path.exists()).collect();
    context.tally.hold(left.is_empty(), "journal left", || {
        format!("{what}: {}", done.text())
    });
    Ok(())
}

/// Names before and after those of real journals.
fn clutter(directory: &Path) -> Result<()> {
    for prefix in ["0", "zz"] {
        let path = |name: &str| directory.join(format!("{prefix}-{name}.journal"));
        symlink("/nowhere", path("dangling"))?;
        symlink(path("loop"), path("loop"))?;
        symlink("/dev/zero", path("endless"))?;
        symlink("/etc/passwd", path("passwd"))?;
        mkfifo(&path("pipe"), Mode::from_bits_truncate(0o666))?;
        fs::create_dir(path("directory"))?;
        fs::write(path("unreadable"), "")?;
        fs::set_permissions(path("unreadable"), fs::Permissions::from_mode(0o000))?;
        fs::write(path("empty"), "")?;
        fs::write(path("text"), "no journal\n")?;
        let _socket = std::os::unix::net::UnixListener::bind(path("socket"))?;
    }
    Ok(())
}
