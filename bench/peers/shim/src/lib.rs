//! Raw WebAssembly without glue: the shim asks for room, writes into it, and calls.

use std::cell::UnsafeCell;

const ROOM: usize = 128 * 1024;

struct Room(UnsafeCell<[u8; ROOM]>);

// SAFETY: an isolate runs one thread.
unsafe impl Sync for Room {}

static INPUT: Room = Room(UnsafeCell::new([0; ROOM]));

/// Where the shim writes its input, of 128 KiB at most.
#[unsafe(no_mangle)]
pub extern "C" fn room() -> *mut u8 {
    INPUT.0.get().cast()
}

/// Reads all of the input; gives its length and, above 32 bits, a sum of its bytes.
#[unsafe(no_mangle)]
pub extern "C" fn answer(length: usize) -> u64 {
    // SAFETY: nobody else holds the room while the module runs.
    let input = unsafe { &*INPUT.0.get() };
    let bytes = &input[..length.min(ROOM)];
    let sum = bytes.iter().fold(0_u32, |sum, byte| sum.wrapping_add(u32::from(*byte)));
    u64::from(sum) << 32 | bytes.len() as u64
}
