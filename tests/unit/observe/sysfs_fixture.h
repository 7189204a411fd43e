/* SPDX-License-Identifier: Apache-2.0 */
/* sysfs_fixture.h - a scratch root whose sys/ is laid out as the kernel lays it out. */
#pragma once

#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "observe/observe.h"
#include "tests/unit/scratch.h"

static char scratch[SCRATCH_BYTES];
static int root = -1, sysfs = -1;

static inline void make_directory(const char *path)
{
    assert_int_equal(path_make_directories(root, path, 0700), 0);
}

static inline void write_file(const char *path, const char *text)
{
    cleanup(fd_closep) int fd = openat(root, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

/* Below sys/, as the kernel lays it out: numbers are links to where the disk is. */
static inline void make_disk(const char *name, const char *number, const char *sectors,
                             const char *diskseq, const char *uevent)
{
    char path[256], target[256];

    (void)snprintf(path, sizeof(path), "/sys/devices/block/%s", name);
    make_directory(path);
    make_directory("/sys/dev/block");
    (void)snprintf(path, sizeof(path), "sys/dev/block/%s", number);
    (void)snprintf(target, sizeof(target), "../../devices/block/%s", name);
    assert_int_equal(symlinkat(target, root, path), 0);
    (void)snprintf(path, sizeof(path), "sys/devices/block/%s/size", name);
    write_file(path, sectors);
    (void)snprintf(path, sizeof(path), "sys/devices/block/%s/dev", name);
    write_file(path, number);
    (void)snprintf(path, sizeof(path), "sys/devices/block/%s/uevent", name);
    write_file(path, uevent);
    if (!diskseq)
        return;
    (void)snprintf(path, sizeof(path), "sys/devices/block/%s/diskseq", name);
    write_file(path, diskseq);
}

static inline int start(void **state)
{
    if (scratch_directory_make(scratch) < 0 || path_open_root(scratch, &root) < 0)
        return -1;
    make_disk("loop3", "7:3", "2048\n", "15\n", "MAJOR=7\nMINOR=3\nDEVNAME=loop3\nDEVTYPE=disk\n");
    return observe_open_sysfs(root, "/sys", &sysfs);
}

static inline int stop(void **state)
{
    fd_close(sysfs);
    fd_close(root);
    return scratch_directory_remove(scratch);
}
