/* SPDX-License-Identifier: Apache-2.0 */
/* claim_call.c - see claim_call.h.
 *
 * The child inherits no descriptor but its input: a socket from which it reads the directories and
 * to which it writes its answer. It closes that when it has nothing of the disk any more, and its
 * end, which may take a millisecond longer, is waited for only if there is no answer.
 */
#include "reconciler/drive/claim_call.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"
#include "lib/path_guard.h"
#include "observe/observe.h"

enum { DIRECTORIES = 2 };

/* The child's answer. */
struct answer {
    int outcome;
    struct store_drive_mount_disk disk;
    struct store_drive_mount_disk backing;
    struct error error;
};

struct asked {
    const struct drive_claim_request *request;
    bool keep;
};

struct drive_claim_call {
    struct loop *loop;
    struct child *child;
    int socket; /* crustd's end */
    struct loop_io said;
    bool has_heard;
    int heard; /* 0: the answer, or -errno */
    struct answer answer;
    int fd; /* that came with it; -1 */
    uint64_t patience_ns;
    char path[DRIVE_PATH_CHARS + 1];
    drive_claim_done *done;
    void *userdata;
};

/* ---- messages with descriptors ---- */

static int send_message(int socket, const void *bytes, size_t length, const int *fds, size_t count)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * DIRECTORIES)];
        struct cmsghdr align;
    } control = {0};
    struct iovec data = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    ssize_t sent;

    if (count) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        CMSG_FIRSTHDR(&message)->cmsg_level = SOL_SOCKET;
        CMSG_FIRSTHDR(&message)->cmsg_type = SCM_RIGHTS;
        CMSG_FIRSTHDR(&message)->cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), fds, sizeof(int) * count);
    }
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent < 0 ? -errno : sent == (ssize_t)length ? 0 : -EMSGSIZE;
}

enum message_failure { MESSAGE_CUT = -EMFILE };

/* Does not wait. ret_fds: -1 for each that did not come. 0 or -errno; -EBADMSG: wrong length; CUT:
 * a descriptor came, and this process has reached its limit of open files. */
static int receive_message(int socket, void *bytes, size_t length, int *ret_fds, size_t count)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * DIRECTORIES)];
        struct cmsghdr align;
    } control = {0};
    struct iovec data = {.iov_base = bytes, .iov_len = length};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
    ssize_t received = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *header = received < 0 ? NULL : CMSG_FIRSTHDR(&message);

    for (size_t i = 0; i < count; i++)
        ret_fds[i] = -1;
    if (received < 0)
        return -errno;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    if (message.msg_flags & MSG_CTRUNC)
        return MESSAGE_CUT;
    return received == (ssize_t)length ? 0 : -EBADMSG;
}

/* ---- in the child ---- */

/* The sources of mounts are looked up, too. Where one of them lies in a file system that hangs,
 * this must not: the disk lies elsewhere. So there is a guard for as long. */
static int read_mounts(int sysfs, struct observed_mounts **ret_mounts)
{
    int r = path_guard_start(-1, NULL, 0);

    if (r == 0)
        r = observe_mounts(sysfs, ret_mounts);
    path_guard_stop();
    return r;
}

static int claim_and_answer(const void *argument)
{
    const struct asked *asked = argument;
    struct drive_claim_request request = *asked->request;
    struct answer answer = {0};
    int directories[DIRECTORIES], fd = -1;
    char nothing;
    int r;

    path_guard_stop(); /* its descriptor is closed here, so it would refuse every path; this process
                          may block */
    r = receive_message(STDIN_FILENO, &nothing, 1, directories, DIRECTORIES);

    if (r < 0)
        return -r;
    request.root = directories[0];
    request.sysfs = directories[1];
    request.read_mounts = read_mounts;
    answer.outcome = drive_claim(&request, &fd, &answer.disk, asked->keep ? &answer.backing : NULL,
                                 &answer.error);
    if (!asked->keep) {
        fd_close(fd);
        fd = -1;
    }
    r = send_message(STDIN_FILENO, &answer, sizeof(answer), &fd, fd >= 0);
    fd_close(fd);
    (void)close(STDIN_FILENO); /* says that the disk is closed */
    return -r;
}

/* ---- in crustd ---- */

static void explain(struct drive_claim_call *call, int r, struct drive_claim_reply *reply)
{
    reply->outcome = r;
    if (r == DRIVE_CLAIM_HANGS)
        (void)error_set(&reply->error, r,
                        "%s cannot be opened: its storage has not answered for %" PRIu64 " s",
                        call->path, call->patience_ns / NSEC_PER_SEC);
    else if (r == MESSAGE_CUT)
        (void)error_set_errno(&reply->error, r, "%s was opened, and crustd cannot take it",
                              call->path);
    else
        (void)error_set_errno(&reply->error, r, "the process that was to open %s did not answer",
                              call->path);
}

static void finish(struct drive_claim_call *call, int r)
{
    struct drive_claim_reply reply = {
        .outcome = call->answer.outcome,
        .fd = r < 0 ? -1 : take_fd(&call->fd),
        .disk = call->answer.disk,
        .backing = call->answer.backing,
        .error = call->answer.error,
    };

    loop_io_stop(&call->said);
    fd_close(call->fd);
    /* With this, a descriptor is closed that came too late and would keep the claim. */
    fd_close(call->socket);
    call->fd = call->socket = -1;
    if (r < 0)
        explain(call, r, &reply);
    call->done(call, &reply, call->userdata);
    fd_close(reply.fd);
}

static int hear(struct drive_claim_call *call)
{
    if (!call->has_heard)
        call->heard =
            receive_message(call->socket, &call->answer, sizeof(call->answer), &call->fd, 1);
    call->has_heard = true;
    return call->heard;
}

static bool is_closed(int socket)
{
    char nothing;

    return recv(socket, &nothing, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

/* Without an answer, the end of the process says what became of it. */
static void on_said(struct loop_io *io, int events)
{
    struct drive_claim_call *call = container_of(io, struct drive_claim_call, said);

    (void)events;
    if (hear(call) < 0) {
        loop_io_stop(io);
    } else if (is_closed(call->socket)) {
        call->child = child_release(call->child);
        finish(call, 0);
    }
}

static void on_ended(struct child *child, enum child_end end, int status,
                     const struct buffer *output, void *userdata)
{
    struct drive_claim_call *call = userdata;
    int r = end == CHILD_EXITED ? -status : end == CHILD_TIMEOUT ? DRIVE_CLAIM_HANGS : -EIO;

    (void)output;
    call->child = child_free(child);
    finish(call, r < 0 ? r : hear(call));
}

/* Identifies the disk whatever path leads to it, if that needs no waiting for storage. */
static uint64_t identify(const struct drive_claim_request *request)
{
    struct stat status;

    if (path_stat_in_root(request->root, request->host_path, &status) == 0 &&
        S_ISBLK(status.st_mode))
        return status.st_rdev;
    return child_subject(request->host_path);
}

static int start(struct drive_claim_call *call, const struct drive_claim_request *request,
                 bool keep)
{
    const struct asked asked = {request, keep};
    cleanup(fd_closep) int childs = -1;
    struct child_request run = {
        .function = claim_and_answer,
        .argument = &asked,
        .root = -1,
        .deadline_ns = call->patience_ns,
        .subject = identify(request),
    };
    int ends[2], r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    call->socket = ends[0];
    run.input = childs = ends[1];
    r = send_message(call->socket, "", 1, (int[]){request->root, request->sysfs}, DIRECTORIES);
    if (r == 0)
        r = child_new(call->loop, &run, on_ended, call, &call->child);
    if (r == 0)
        loop_io_start(call->loop, &call->said, call->socket, LOOP_READ, on_said);
    return r;
}

int drive_claim_call_new(struct loop *loop, const struct drive_claim_request *request, bool keep,
                         uint64_t patience_ns, drive_claim_done *done, void *userdata,
                         struct drive_claim_call **ret_call)
{
    struct drive_claim_call *call = calloc(1, sizeof(*call));
    int r;

    if (!call)
        return -ENOMEM;
    call->loop = loop;
    call->socket = call->fd = -1;
    call->patience_ns = patience_ns;
    call->done = done;
    call->userdata = userdata;
    (void)snprintf(call->path, sizeof(call->path), "%s", request->host_path);
    r = start(call, request, keep);
    if (r < 0) {
        (void)drive_claim_call_free(call);
        return r;
    }
    *ret_call = call;
    return 0;
}

struct drive_claim_call *drive_claim_call_free(struct drive_claim_call *call)
{
    if (!call)
        return NULL;
    loop_io_stop(&call->said);
    call->child = child_free(call->child);
    fd_close(call->fd);
    fd_close(call->socket);
    free(call);
    return NULL;
}
