/* SPDX-License-Identifier: Apache-2.0 */
/* listener.c - see listener.h.
 *
 * SO_PEERCRED has the number of the process at the time of listen(2). That another process has it
 * now is noticed by SO_PEERPIDFD, which Linux has since 6.5; before, the number is all there is.
 */
#include "lib/listener.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/path.h"
#include "lib/process.h"
#include "lib/process_trust.h"
#include "lib/text.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

enum {
    JAILED_ID_CHARS = 32, /* of a sandbox's id, in the names of Firecracker's directories */
    ARGUMENTS_BYTES = 64 * 1024,
    NAME_BYTES = 64,
};

/* ---- the way to the socket ------------------------------------------------------------- */

static bool names_sandbox(const char *component, size_t length, const char *sandbox_id)
{
    size_t id_length = strlen(sandbox_id);

    return (length == id_length || (length == JAILED_ID_CHARS && id_length > JAILED_ID_CHARS)) &&
           strncmp(component, sandbox_id, length) == 0;
}

/* The length of what leads to the sandbox's own directory: up to the last component that is its id,
 * else all but the last component. */
static size_t length_of_directory(const char *path, const char *sandbox_id)
{
    const char *name = strrchr(path, '/');
    size_t found = name ? (size_t)(name - path) : 0;

    for (const char *at = path; sandbox_id && *sandbox_id && *at;) {
        size_t slashes = strspn(at, "/"), length = strcspn(at + slashes, "/");
        const char *end = at + slashes + length;

        if (*end && names_sandbox(at + slashes, length, sandbox_id))
            found = (size_t)(end - path);
        at = end;
    }
    return found;
}

static int open_strictly(int root, const char *path, const char *sandbox_id, int *ret_fd)
{
    cleanup(fd_closep) int directory = -1;
    size_t length = length_of_directory(path, sandbox_id);
    char *upper = strndup(path, length);
    const char *lower = path + length;
    int r = upper ? 0 : -ENOMEM;

    if (r == 0)
        r = path_open_directory_in_root(root, *upper ? upper : "/", &directory);
    free(upper);
    return r < 0 ? r : path_open_unlinked(directory, lower + strspn(lower, "/"), ret_fd);
}

int listener_open(int root, const char *path, const struct listener *listener, int *ret_fd,
                  struct error *error)
{
    int r = listener->vmm ? open_strictly(root, path, listener->sandbox_id, ret_fd)
                          : path_open_in_root(root, path, ret_fd);

    if (r == PATH_BEHIND_A_LINK)
        return error_set(error, r,
                         "cannot connect: below the sandbox's directory a link is on the way to %s",
                         path);
    return r < 0 ? error_set_errno(error, r, "cannot connect") : 0;
}

/* ---- who listens ----------------------------------------------------------------------- */

/* A pidfd of a process that has ended can be read from (pidfd_open(2)); where the process is gone
 * altogether, some kernels give none. */
static bool pidfd_has_ended(int fd)
{
    cleanup(fd_closep) int process = -1;
    socklen_t size = sizeof(process);
    struct pollfd poll_of = {.events = POLLIN};

    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &size) < 0) {
        process = -1;
        return errno != ENOPROTOOPT;
    }
    poll_of.fd = process;
    return poll(&poll_of, 1, 0) > 0;
}

static bool has_ended(int fd, pid_t pid)
{
    struct process process;

    return pidfd_has_ended(fd) || process_read(pid, &process) == PROCESS_GONE;
}

static bool is_parent(pid_t pid, pid_t vmm)
{
    struct process process;

    return process_read(vmm, &process) == 0 && process.parent == pid;
}

/* Shims of Kata are started with "-id SANDBOX" (containerd's shim API, which CRI-O speaks as well).
 */
static bool has_id(const struct buffer *arguments, const char *sandbox_id)
{
    const char *argument = buffer_text(arguments), *end = argument + arguments->length;
    bool found = false, expected = false;

    for (; argument < end && !found; argument += strlen(argument) + 1) {
        found = expected && strcmp(argument, sandbox_id) == 0;
        expected = strcmp(argument, "-id") == 0;
    }
    return found;
}

/* Not any process of root's that names the sandbox: a virtiofsd does, and a guest may have it. 1,
 * 0, or PROCESS_HANGS: it cannot be told. */
static int is_shim(pid_t pid, const char *sandbox_id)
{
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(ARGUMENTS_BYTES);
    int r;

    if (!sandbox_id || !*sandbox_id)
        return 0;
    r = process_read_arguments(pid, &arguments);
    if (r == 0 && has_id(&arguments, sandbox_id) &&
        process_judge_unjailed(pid, NULL) == PROCESS_ROOTS)
        r = process_still_has_arguments(pid, &arguments);
    else
        r = r == PROCESS_HANGS ? r : 0;
    return r == 1 || r == PROCESS_HANGS ? r : 0;
}

/* As is_shim(). */
static int is_of_sandbox(pid_t pid, const struct listener *listener)
{
    if (pid == listener->vmm || is_parent(pid, listener->vmm))
        return 1;
    return is_shim(pid, listener->sandbox_id);
}

static bool is_roots_or(uid_t uid, pid_t vmm)
{
    uid_t user = 0;

    if (uid == 0 || uid == geteuid())
        return true;
    return process_judge(vmm, &user) >= 0 && uid == user;
}

static void name_process(pid_t pid, char ret_name[static NAME_BYTES])
{
    cleanup(buffer_done) struct buffer name = BUFFER_INIT(NAME_BYTES);
    const char *text = process_read_file(pid, "comm", &name) == 0 ? buffer_text(&name) : "?";

    text_clean(text, strcspn(text, "\n"), ret_name, NAME_BYTES);
}

static bool refuse_unread(const struct ucred *peer, const char *path, struct error *error)
{
    char name[NAME_BYTES];

    name_process(peer->pid, name);
    (void)error_set(error, 0,
                    "process %d (%s) of user %u listens on %s, and its arguments cannot be read at "
                    "present, because it keeps its memory locked: whether it is the sandbox's shim "
                    "is not known",
                    (int)peer->pid, name, (unsigned)peer->uid, path);
    return false;
}

static bool refuse(const struct ucred *peer, const char *path, bool is_there, struct error *error)
{
    char name[NAME_BYTES] = "one that has ended";

    if (is_there)
        name_process(peer->pid, name);
    (void)error_set(error, 0,
                    "process %d (%s) of user %u listens on %s, which is neither the sandbox's VMM "
                    "nor its shim",
                    (int)peer->pid, name, (unsigned)peer->uid, path);
    return false;
}

bool listener_is_believed(int fd, const char *path, const struct listener *listener,
                          struct error *error)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    bool is_there;
    int r;

    if (!listener->vmm)
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) {
        (void)error_set_errno(error, -errno, "cannot find out who listens on %s", path);
        return false;
    }
    is_there = peer.pid > 0 && !has_ended(fd, peer.pid);
    r = is_there ? is_of_sandbox(peer.pid, listener) : is_roots_or(peer.uid, listener->vmm);
    if (r == 1)
        return true;
    if (r == PROCESS_HANGS)
        return refuse_unread(&peer, path, error);
    return refuse(&peer, path, is_there, error);
}
