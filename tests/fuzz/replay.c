/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c - runs a fuzz target over files, for compilers and tests without a fuzzing engine.
 *
 *     qmp_fuzz FILE|DIRECTORY...
 *
 * Each file is one input, each directory stands for the files in it. Prints how many inputs ran; a
 * finding is a crash or a sanitizer's report.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"

enum { INPUT_BYTES = 16 * 1024 * 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int complain(const char *name)
{
    (void)fprintf(stderr, "%s: %s\n", name, strerror(errno));
    return -1;
}

/* The input is copied to a block of its own size, so that reading past its end is noticed. */
static int run_file(int fd, const char *name)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(INPUT_BYTES);
    cleanup(freep) uint8_t *exact = NULL;
    int r = buffer_read_all(&text, fd);

    if (r < 0) {
        errno = -r;
        return complain(name);
    }
    exact = malloc(text.length ? text.length : 1);
    if (!exact)
        return complain(name);
    memcpy(exact, buffer_text(&text), text.length);
    (void)LLVMFuzzerTestOneInput(exact, text.length);
    return 0;
}

static int run_path(int directory, const char *name, unsigned *count);

static int run_directory(int fd, const char *name, unsigned *count)
{
    cleanup(fd_closep) int copy = dup(fd);
    cleanup(dir_closep) DIR *directory = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;
    int r = 0;

    if (!directory)
        return complain(name);
    (void)take_fd(&copy);
    while ((entry = readdir(directory))) {
        if (entry->d_name[0] != '.' && run_path(fd, entry->d_name, count) < 0)
            r = -1;
    }
    return r;
}

static int run_path(int directory, const char *name, unsigned *count)
{
    cleanup(fd_closep) int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return complain(name);
    if (S_ISDIR(st.st_mode))
        return run_directory(fd, name, count);
    if (run_file(fd, name) < 0)
        return -1;
    ++*count;
    return 0;
}

int main(int argc, char **argv)
{
    unsigned count = 0;
    int status = EXIT_SUCCESS;

    for (int i = 1; i < argc; i++) {
        if (run_path(AT_FDCWD, argv[i], &count) < 0)
            status = EXIT_FAILURE;
    }
    printf("%u inputs\n", count);
    return status;
}
