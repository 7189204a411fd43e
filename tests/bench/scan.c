/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - the bare scan that a cold start is measured against: scan DIRECTORY...
 *
 * Reads every file of every directory below each DIRECTORY once, as safely as crustd has to
 * (openat2 beneath the directory, then fstat), and does nothing with the bytes.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static long files, bytes;

static int open_below(int directory, const char *name, int flags)
{
    struct open_how how = {
        .flags = (__u64)(flags | O_NONBLOCK | O_CLOEXEC),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };

    return (int)syscall(SYS_openat2, directory, name, &how, sizeof(how));
}

static void read_file(int directory, const char *name)
{
    static char text[64 * 1024];
    int fd = open_below(directory, name, O_RDONLY);
    struct stat st;
    ssize_t length;

    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        while ((length = read(fd, text, sizeof(text))) > 0)
            bytes += length;
        files++;
    }
    (void)close(fd);
}

/* Calls back with each name of an open directory, which it closes. */
static void each_name(int fd, void (*callback)(int directory, const char *name))
{
    DIR *names = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *name;

    while (names && (name = readdir(names)))
        if (name->d_name[0] != '.')
            callback(dirfd(names), name->d_name);
    if (names)
        (void)closedir(names);
}

static void read_directory(int directory, const char *name)
{
    each_name(open_below(directory, name, O_RDONLY | O_DIRECTORY), read_file);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        each_name(open(argv[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC), read_directory);
    (void)printf("%ld %ld\n", files, bytes);
    return 0;
}
