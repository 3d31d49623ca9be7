//! Several processes in one: locks hold between open files, not between processes. Those that are killed or stopped are real.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::pool::tests::Member;
use crate::{Pool as _, ProcessPool};

/// Far longer than anything takes here.
const LONG: Duration = Duration::from_secs(20);

/// A folder of a test's own.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, SeqCst);
        let path = std::env::temp_dir().join(format!("gen-limit-seats-{}-{number}", std::process::id()));
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One process with one plugin.
struct Process {
    pool: ProcessPool,
    member: Member,
    woken: Receiver<()>,
    now: u64,
}

impl Process {
    fn new(folder: &Path, max: u32) -> Self {
        let (wake, woken) = channel();
        let wake = Mutex::new(wake);
        let machine = Machine::new(folder.into(), move || _ = locked(&wake).send(()));
        let mut pool = ProcessPool::of_machine(machine);
        let member = Member::of(&mut pool, Some("gpu"), max);
        Self { pool, member, woken, now: 0 }
    }

    fn ask(&mut self, times: u32) {
        for _ in 0..times {
            self.member.ask(&mut self.pool);
        }
    }

    fn end(&mut self) {
        self.member.end(&mut self.pool);
    }

    /// Takes note of what has happened elsewhere.
    fn collect(&mut self) {
        while self.woken.try_recv().is_ok() {}
        self.pool.tick(self.now);
        self.member.exchange(&mut self.pool, self.now);
    }

    fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.collect();
    }

    fn seats(&self) -> u32 {
        self.pool.view()[0].supply.as_ref().expect("a pool beyond").seats
    }
}

/// Until something is so; whoever is woken meanwhile takes note of it.
#[track_caller]
fn until(all: &mut [&mut Process], what: impl Fn(&[&mut Process]) -> bool) -> Duration {
    let begun = Instant::now();
    while !what(all) {
        if begun.elapsed() >= LONG {
            let views: Vec<_> = all.iter().map(|process| process.pool.view()).collect();
            panic!("it never comes to that: {views:?}");
        }
        for process in &mut *all {
            if process.woken.recv_timeout(Duration::from_millis(1)).is_ok() {
                process.collect();
            }
        }
    }
    begun.elapsed()
}

fn running(all: &[&mut Process]) -> u32 {
    all.iter().map(|process| process.member.running).sum()
}

#[test]
fn a_limit_holds_over_processes_and_everybody_is_served() {
    let folder = Folder::new();
    let mut all: [Process; 4] = std::array::from_fn(|_| Process::new(&folder.0, 3));
    for process in &mut all {
        process.ask(8);
    }
    let mut all = all.each_mut();
    let mut ended = 0;
    while ended < 32 {
        until(&mut all, |all| running(all) == 3.min(32 - ended));
        let first = ended as usize;
        let at =
            (0..4).map(|n| (first + n) % 4).find(|&at| all[at].member.running > 0).expect("somebody runs");
        all[at].end();
        ended += 1;
        assert!(running(&all) <= 3);
    }
    assert!(all.iter().all(|process| process.member.admitted == 8));
}

#[test]
fn seats_go_round_however_many_wait_in_a_process() {
    let folder = Folder::new();
    let [mut busy, mut other, mut quiet] = std::array::from_fn(|_| Process::new(&folder.0, 1));
    busy.ask(50);
    other.ask(50);
    until(&mut [&mut busy, &mut other], |all| running(all) == 1);
    let before = busy.member.admitted + other.member.admitted;
    quiet.ask(1);
    let mut all = [&mut busy, &mut other, &mut quiet];
    // Those that hold seats learn that somebody waits.
    while all[2].member.admitted == 0 {
        until(&mut all, |all| running(all) == 1);
        if all[2].member.running == 0 {
            let at = usize::from(all[0].member.running == 0);
            all[at].end();
        }
    }
    let turns = all[0].member.admitted + all[1].member.admitted - before;
    assert!(turns <= 3, "{turns} others came first");
}

#[test]
fn a_seat_that_nobody_uses_goes_to_another_process_at_once_and_back_after_a_while() {
    let folder = Folder::new();
    let [mut a, mut b] = std::array::from_fn(|_| Process::new(&folder.0, 1));
    a.ask(1);
    a.end();
    assert_eq!((a.member.running, a.seats()), (0, 1), "it stays where it was used");
    b.ask(1);
    until(&mut [&mut a, &mut b], |all| all[1].member.running == 1);
    b.end();
    assert_eq!(b.seats(), 1);
    b.pass(199);
    assert_eq!(b.seats(), 1);
    b.pass(1);
    assert_eq!(b.seats(), 0, "without anybody's asking");
    a.ask(1);
    assert_eq!(a.member.running, 1, "it is free, so it is taken at once");
}

#[test]
fn the_least_of_all_members_holds_from_the_next_seat_on() {
    let folder = Folder::new();
    let [mut a, mut b, mut low] = [3, 3, 1].map(|max| Process::new(&folder.0, max));
    a.ask(2);
    b.ask(2);
    low.ask(1);
    a.end();
    a.collect();
    assert_eq!(running(&[&mut a, &mut b, &mut low]), 2, "two are above one, so nobody new comes");
    a.end();
    b.end();
    until(&mut [&mut a, &mut b, &mut low], |all| running(all) == 1);
    assert_eq!(b.member.running, 1, "it came before");
    drop(low);
    a.ask(1);
    until(&mut [&mut a, &mut b], |all| running(all) == 2);
}

#[test]
fn a_seat_whose_file_is_taken_away_is_lost_and_said_to_be() {
    let folder = Folder::new();
    let mut a = Process::new(&folder.0, 1);
    a.ask(1);
    std::fs::remove_dir_all(&folder.0).expect("a folder");
    let lost = |process: &Process| process.pool.view()[0].supply.as_ref().map(|supply| supply.lost);
    let mut b = Process::new(&folder.0, 1);
    b.ask(1);
    assert_eq!(b.member.running, 1, "nothing says that there is another");
    until(&mut [&mut a], |all| lost(all[0]) == Some(1));
    a.end();
    a.ask(1);
    assert_eq!(a.member.running, 0);
    b.end();
    until(&mut [&mut a, &mut b], |all| all[0].member.running == 1);
}

#[test]
fn what_was_shared_is_gone_with_the_last_who_shared_it() {
    let folder = Folder::new();
    let mut a = Process::new(&folder.0, 2);
    a.ask(3);
    drop(a);
    let locked = walk(&folder.0).into_iter().filter(|path| {
        let is_brief = path.parent().is_some_and(|parent| !parent.ends_with("seats"));
        is_brief && path.file_name().is_some_and(|name| name != "key")
    });
    assert_eq!(locked.collect::<Vec<_>>(), Vec::<PathBuf>::new());
    let mut b = Process::new(&folder.0, 2);
    b.ask(2);
    assert_eq!(b.member.running, 2);
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files.extend(walk(&path)) } else { files.push(path) }
    }
    files
}

#[test]
fn in_a_folder_that_others_can_write_to_a_limit_holds_for_the_process_alone_and_says_so() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    std::fs::create_dir(&folder.0).expect("a folder");
    std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o777)).expect("permissions");
    let mut all: [Process; 2] = std::array::from_fn(|_| Process::new(&folder.0, 2));
    for process in &mut all {
        process.ask(3);
        assert_eq!((process.member.running, process.member.waiting), (2, 1));
        let supply = process.pool.view().remove(0).supply.expect("a pool beyond");
        let error = supply.error.expect("it is said");
        assert!(error.contains("nobody else can write to"), "{error}");
        process.end();
        assert_eq!(process.member.running, 2, "it serves its own line");
    }
}

#[test]
fn nothing_is_made_before_a_seat_is_wanted() {
    let folder = Folder::new();
    let mut process = Process::new(&folder.0, 2);
    process.pass(1_000);
    assert!(!folder.0.exists());
    assert_eq!(process.pool.next_tick(), None);
}

/// This program again, as another process that does what it is told, a line at a time.
struct Real {
    child: Child,
    orders: ChildStdin,
    said: BufReader<std::process::ChildStdout>,
}

const FOLDER: &str = "GEN_LIMIT_SEATS_OF_A_TEST";

impl Real {
    fn new(folder: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "machine::tests::other_process", "--nocapture", "--include-ignored"])
            .env(FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program");
        let (orders, said) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, orders, said: BufReader::new(said) }
    }

    /// Has it ask, and answers how many calls run there then.
    fn ask(&mut self) -> u32 {
        writeln!(self.orders, "ask").expect("it lives");
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).expect("it lives") > 0, "it has gone");
            if let Some((_, count)) = line.trim().split_once("calls: ") {
                return count.parse().expect("a number");
            }
        }
    }

    fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).expect("a number of a process");
        // SAFETY: a child that has not been waited for, so the number is its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        if signal == libc::SIGSTOP {
            // Until then its threads may still run.
            // SAFETY: nothing is written where there is nothing to write to.
            assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WUNTRACED) }, pid);
        }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "what other tests run as another process"]
fn other_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let mut me = Process::new(Path::new(&folder), 1);
    for _ in std::io::stdin().lines() {
        me.ask(1);
        println!("calls: {}", me.member.running);
    }
}

#[test]
fn seats_of_a_process_that_is_killed_are_free_within_200_ms() {
    let folder = Folder::new();
    let mut me = Process::new(&folder.0, 1);
    for _ in 0..5 {
        let mut other = Real::new(&folder.0);
        assert_eq!(other.ask(), 1);
        me.ask(1);
        assert_eq!(me.member.running, 0);
        other.signal(libc::SIGKILL);
        let took = until(&mut [&mut me], |all| all[0].member.running == 1);
        eprintln!("free {:.1} ms after the kill", took.as_secs_f64() * 1e3);
        assert!(took < Duration::from_millis(200), "{took:?}");
        me.end();
        me.pass(1);
        me.pass(200);
    }
}

#[test]
fn who_is_stopped_in_line_is_passed_over_and_who_is_stopped_with_a_seat_keeps_it() {
    let folder = Folder::new();
    let [mut me, mut holder] = std::array::from_fn(|_| Process::new(&folder.0, 1));
    holder.ask(1);
    let mut other = Real::new(&folder.0);
    assert_eq!(other.ask(), 0);
    other.signal(libc::SIGSTOP);
    me.ask(1);
    holder.end();
    holder.collect();
    let took = until(&mut [&mut me, &mut holder], |all| all[0].member.running == 1);
    assert!(took >= PATIENCE.mul_f32(0.9), "the other had its turn: {took:?}");
    me.end();
    me.collect();
    other.signal(libc::SIGCONT);
    me.pass(200);
    // It has its turn now, and keeps it whatever becomes of it.
    until(&mut [&mut me], |_| me_sees_a_seat_held(&folder.0));
    other.signal(libc::SIGSTOP);
    me.ask(1);
    assert_eq!(me.member.running, 0);
    other.signal(libc::SIGKILL);
    until(&mut [&mut me], |all| all[0].member.running == 1);
}

fn me_sees_a_seat_held(folder: &Path) -> bool {
    let files = Files::open(folder, "pool gpu").expect("a folder");
    !files.is_any_free(1).expect("files")
}
