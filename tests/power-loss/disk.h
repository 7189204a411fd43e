/* SPDX-License-Identifier: Apache-2.0 */
/* disk.h - records what this process does to the files of one directory, and makes images of what a
 * power cut at any moment leaves of them.
 *
 * Linking recording.c puts it between the program, SQLite included, and libc: open, write, pwrite,
 * ftruncate, fsync, fdatasync, rename and unlink. What goes to the recorded directory is done and
 * recorded, all else is passed on; flushes are only recorded, and none is made until disk_forget().
 *
 * The disk is as unkind as POSIX allows. A file's bytes last once that file was flushed, and not
 * because another one was. Until then each sector is in any of the states that it was in since. A
 * name lasts once its directory was flushed; names of before that come in order, up to any one. The
 * wal-index (-shm) is memory: an image has none of it, or noise.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum disk_loss {
    DISK_KEEPS_ALL,         /* all that was written is there: only the process was killed */
    DISK_KEEPS_FLUSHED,     /* nothing but what was flushed */
    DISK_MIXES_512,         /* each sector of 512 bytes in a state of its own */
    DISK_MIXES_4096,        /* the same with 4,096 */
    DISK_REORDERS,          /* each write is there as a whole or is not */
    DISK_TEARS_LAST,        /* all but the last write, of which a beginning or an end is there */
    DISK_GARBLES,           /* as MIXES_512, and what is not flushed may be noise */
    DISK_LOSSES,            /* how many kinds there are */
    DISK_LIES = DISK_LOSSES /* it said that it flushed, and kept each write or not */
};

const char *disk_loss_name(enum disk_loss loss);

/* Of `directory` alone, whose files of now are taken for flushed. 0 or -errno. */
int disk_record(const char *directory);
/* From here on nothing is recorded. */
void disk_stop(void);
/* Forgets all, also what was recorded. */
void disk_forget(void);

/* How many operations are on record: a power cut comes after any number of them. */
size_t disk_operations(void);

/* Makes `directory`, which must be empty, what is left after the first `operations`. Calls with
 * operations in ascending order are cheap. 0 or -errno. */
int disk_image(size_t operations, enum disk_loss loss, uint64_t seed, const char *directory);

/* Of a seed: the same numbers each time. */
uint64_t disk_random(uint64_t *seed);
size_t disk_random_below(uint64_t *seed, size_t bound);
