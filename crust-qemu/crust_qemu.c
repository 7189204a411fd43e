/* SPDX-License-Identifier: Apache-2.0 */
/* crust_qemu.c - crust-qemu: starts QEMU in Kata's place, with one more monitor.
 *
 * Kata's shim holds QEMU's only monitor for as long as the VM lives, so nobody else can tell QEMU
 * that a disk has grown. Kata's `path` names this program instead of QEMU; it adds the option of
 * monitor_option.h and becomes QEMU by execve(2): same arguments, environment and descriptors.
 *
 * It must never keep a VM from starting. QEMU exits if it cannot make a socket, so the monitor is
 * only asked for where one can be made, and in everything unusual QEMU runs as Kata meant it.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "crust-qemu/monitor_option.h"
#include "crust-qemu/qemu_program.h"
#include "lib/cleanup.h"

enum { EXIT_NOT_FOUND = 127, EXIT_NOT_RUN = 126 }; /* as a shell says it */

extern char **environ;

static const char *const directories[] = {"/opt/kata/bin", "/usr/bin", NULL};

/* Whether it belongs to root and nobody else has any of these rights. */
static bool is_roots(const char *directory, mode_t foreign)
{
    struct stat status;

    return lstat(directory, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == 0 &&
           (status.st_mode & foreign) == 0;
}

/* Whoever could put sockets there could answer in QEMU's place. */
static bool is_private(void)
{
    return is_roots(MONITOR_PARENT, S_IWGRP | S_IWOTH) &&
           is_roots(MONITOR_DIRECTORY, S_IRWXG | S_IRWXO);
}

/* QEMU unlinks whatever is at the socket's path; only a socket of an earlier VM may be lost. */
static bool is_free(const char *path)
{
    struct stat status;

    return lstat(path, &status) < 0 ? errno == ENOENT : S_ISSOCK(status.st_mode);
}

/* Tries to make a socket: missing rights or space, or a security policy, stop this program as they
 * would stop QEMU. The name contains this process's id, so an existing file was left by a process
 * that was killed here. */
static bool can_make_socket(const char *directory)
{
    cleanup(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/.%d", directory, (int)getpid());
    (void)unlink(address.sun_path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return false;
    return unlink(address.sun_path) == 0;
}

/* The arguments with the monitor behind them; NULL: without. */
static char **with_monitor(int count, char **arguments)
{
    static struct monitor_option option;
    static char qmp[] = "-qmp";
    char **longer;

    if (!monitor_option((const char *const *)arguments, MONITOR_DIRECTORY, &option) ||
        !is_private() || !is_free(option.path) || !can_make_socket(MONITOR_DIRECTORY))
        return NULL;
    longer = calloc((size_t)count + 3, sizeof(*longer));
    if (!longer)
        return NULL;
    memcpy(longer, arguments, (size_t)count * sizeof(*longer));
    longer[count] = qmp;
    longer[count + 1] = option.value;
    return longer;
}

/* Returns only if neither could be run; then errno says why. */
static void become(char *program, int count, char **arguments)
{
    char **longer = with_monitor(count, arguments);

    arguments[0] = program;
    if (longer) {
        longer[0] = program;
        (void)execve(program, longer, environ);
        free(longer);
    }
    (void)execve(program, arguments, environ);
}

/* From /proc, which knows the file even if it has been deleted or replaced. */
static void find_self(const char *argument0, char ret_path[static PATH_MAX], struct stat *ret_own)
{
    static const char running[] = "/proc/self/exe";
    ssize_t length = readlink(running, ret_path, PATH_MAX - 1);

    if (length < 0)
        length = snprintf(ret_path, PATH_MAX, "%s", argument0);
    ret_path[length < PATH_MAX ? length : PATH_MAX - 1] = '\0';
    if (stat(running, ret_own) < 0 && stat(ret_path, ret_own) < 0)
        *ret_own = (struct stat){0};
}

static const char *hint(int error)
{
    return error == EACCES ? "; where SELinux is enforced, this program needs the label that QEMU "
                             "has (chcon --reference=QEMU PROGRAM)"
                           : "";
}

int main(int argc, char **argv)
{
    char self[PATH_MAX], program[PATH_MAX];
    const char *name = argc > 0 ? program_name(argv[0]) : NULL;
    struct stat own;

    if (!name) {
        (void)fprintf(stderr, "crust-qemu: call it crust-NAME, where NAME is the QEMU to run, such "
                              "as crust-qemu-system-x86_64\n");
        return EXIT_NOT_FOUND;
    }
    find_self(argv[0], self, &own);
    if (!program_find(self, &own, name, directories, program)) {
        (void)fprintf(stderr,
                      "crust-%s: no %s beside %s, in /opt/kata/bin or in /usr/bin: install "
                      "QEMU there, or set Kata's path to QEMU itself\n",
                      name, name, self);
        return EXIT_NOT_FOUND;
    }
    become(program, argc, argv);
    (void)fprintf(stderr, "crust-%s: cannot run %s: %s%s\n", name, program, strerror(errno),
                  hint(errno));
    return EXIT_NOT_RUN;
}
