//! What the simulation takes in place of the system: the wall clock and random numbers of its thread, and a watch on panics.
//! Other threads get the system's own.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Once;

use nix::libc;
use vance_tests::sim::clock;

/// In place of libc's: ids, seeds of hash maps and of `select!` come from here.
///
/// # Safety
/// As getrandom(2): `buffer` is good for `length` bytes.
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    if !buffer.is_null() && length > 0 {
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
        if clock::random(bytes) {
            return length.cast_signed();
        }
    }
    // SAFETY: the system call with the caller's own arguments.
    unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) as isize }
}

/// In place of libc's: the wall clock is the simulation's; every other clock is the system's.
///
/// # Safety
/// As clock_gettime(2): `time` is good for one timespec.
#[unsafe(no_mangle)]
#[allow(unsafe_code)]
unsafe extern "C" fn clock_gettime(clock_id: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    if clock_id == libc::CLOCK_REALTIME
        && let Some(wall) = clock::wall()
    {
        let (tv_sec, tv_nsec) = (wall.as_secs().cast_signed(), i64::from(wall.subsec_nanos()));
        // SAFETY: the caller's promise.
        unsafe { time.write(libc::timespec { tv_sec, tv_nsec }) };
        return 0;
    }
    // SAFETY: the system call with the caller's own arguments.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock_id, time) as c_int }
}

thread_local! {
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Runs something and gives the panics that it did not mean to happen besides.
pub(crate) fn watched<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let seen = PANICS.with_borrow_mut(|panics| {
                let Some(panics) = panics else { return false };
                let struck = panic.payload().downcast_ref::<&str>() == Some(&vance_supervise::STRUCK);
                if !struck {
                    panics.push(panic.to_string());
                }
                true
            });
            if !seen {
                usual(panic);
            }
        }));
    });
    PANICS.set(Some(Vec::new()));
    let result = work();
    (result, PANICS.take().unwrap_or_default())
}
