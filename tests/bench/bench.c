/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c - see bench.h. */
#include "tests/bench/bench.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 4 };

uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* The path below a descriptor of its directory, which the caller closes. */
static int make_address(const char *path, struct sockaddr_un *ret_address)
{
    char for_directory[PATH_MAX], for_name[PATH_MAX];
    int directory;

    (void)snprintf(for_directory, sizeof(for_directory), "%s", path);
    (void)snprintf(for_name, sizeof(for_name), "%s", path);
    directory = open(dirname(for_directory), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        fail(path);
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(ret_address->sun_path, sizeof(ret_address->sun_path), "/proc/self/fd/%d/%.60s",
                   directory, basename(for_name));
    return directory;
}

/* As a shim does that hands its VMM the socket, and has let go of it (vmms.c): crustd asks who
 * called listen(2), and would not believe this program, which is neither. */
static int listen_and_end(int fd)
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0)
        _exit(listen(fd, BACKLOG) < 0);
    return pid > 0 && (waitpid(pid, &status, 0) < 0 || status == 0) ? 0 : -1;
}

int socket_listen(const char *path)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address;
    int directory = make_address(path, &address);

    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen_and_end(fd) < 0)
        fail(path);
    (void)close(directory);
    return fd;
}

int socket_connect(const char *path)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address;
    int directory = make_address(path, &address);

    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        fail(path);
    (void)close(directory);
    return fd;
}

uint64_t file_bytes(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t bytes = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);

    if (bytes < 0)
        fail(path);
    (void)close(fd);
    return (uint64_t)bytes;
}

uint64_t random_around(uint64_t nanoseconds)
{
    return nanoseconds / 2 + (uint64_t)(drand48() * (double)nanoseconds);
}

void sleep_ns(uint64_t nanoseconds)
{
    struct timespec left = {.tv_sec = (time_t)(nanoseconds / 1000000000),
                            .tv_nsec = (long)(nanoseconds % 1000000000)};

    while (nanosleep(&left, &left) < 0)
        ;
}
