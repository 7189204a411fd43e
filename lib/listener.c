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

int listener_open(int root, const char *path, const struct listener *listener, int *ret_fd,
                  struct error *error)
{
    cleanup(fd_closep) int directory = -1;
    cleanup(freep) char *upper = NULL;
    size_t length = length_of_directory(path, listener->sandbox_id);
    int r;

    if (listener->vmm) {
        upper = strndup(path, length);
        r = upper ? path_open_directory_in_root(root, *upper ? upper : "/", &directory) : -ENOMEM;
        if (r == 0)
            r = path_open_unlinked(directory, path + length + strspn(path + length, "/"), ret_fd);
    } else {
        r = path_open_in_root(root, path, ret_fd);
    }
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

/* Not any process of root's that names the sandbox: a virtiofsd does, and a guest may have it. A
 * process that keeps its memory locked is waited for until the worker's deadline. */
static bool is_shim(pid_t pid, const char *sandbox_id)
{
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(ARGUMENTS_BYTES);

    return sandbox_id && *sandbox_id && process_read_arguments(pid, &arguments) == 0 &&
           has_id(&arguments, sandbox_id) && process_judge_unjailed(pid, NULL) == PROCESS_ROOTS &&
           process_still_has_arguments(pid, &arguments) == 1;
}

static bool is_of_sandbox(pid_t pid, const struct listener *listener)
{
    struct process vmm;
    bool is_parent = process_read(listener->vmm, &vmm) == 0 && vmm.parent == pid;

    return pid == listener->vmm || is_parent || is_shim(pid, listener->sandbox_id);
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

bool listener_is_believed(int fd, const char *path, const struct listener *listener,
                          struct error *error)
{
    char name[NAME_BYTES] = "one that has ended";
    struct process process;
    struct ucred peer;
    socklen_t size = sizeof(peer);
    bool is_there;

    if (!listener->vmm)
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) {
        (void)error_set_errno(error, -errno, "cannot find out who listens on %s", path);
        return false;
    }
    is_there =
        peer.pid > 0 && !pidfd_has_ended(fd) && process_read(peer.pid, &process) != PROCESS_GONE;
    if (is_there ? is_of_sandbox(peer.pid, listener) : is_roots_or(peer.uid, listener->vmm))
        return true;
    if (is_there)
        name_process(peer.pid, name);
    (void)error_set(error, 0,
                    "process %d (%s) of user %u listens on %s, which is neither the sandbox's VMM "
                    "nor its shim",
                    (int)peer.pid, name, (unsigned)peer.uid, path);
    return false;
}
