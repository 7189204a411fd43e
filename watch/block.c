/* SPDX-License-Identifier: Apache-2.0 */
/* block.c - the kernel's uevents, directly from its netlink multicast group.
 *
 * Any process with CAP_NET_ADMIN can send to that group, and any process at all to crustd's
 * address. So a message counts only if the kernel itself sent it: port 0, group 1, credentials of
 * pid 0 and uid 0. Even then it only names the device to observe again.
 *
 * The kernel drops messages that do not fit into the receive buffer and reports that once, by
 * ENOBUFS. What was queued before is still there, and newer messages are dropped until the queue is
 * empty. So after a loss the queue is emptied first, and only then everything is observed. A
 * message longer than the buffer here cannot come from the kernel (its path and 2 KiB of variables)
 * and counts as a loss.
 *
 * One callback takes at most BATCH messages; the loop calls again for the rest.
 */
#include <errno.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/cleanup.h"
#include "watch/watch_internal.h"

enum { RECEIVE_BYTES = 16 * 1024 * 1024, MESSAGE_BYTES = 8192, BATCH = 256, KERNEL_GROUP = 1 };

struct watch_block {
    struct loop *loop;
    const struct watch_block_handler *handler;
    void *userdata;
    struct watch_counters counters;
    struct loop_io io;
    int receive_bytes;
    int fd;    /* -1: not available */
    bool lost; /* messages were dropped and the queue is not empty yet */
};

union credentials_space {
    struct cmsghdr alignment;
    char bytes[CMSG_SPACE(sizeof(struct ucred))];
};

static bool is_from_kernel(struct msghdr *message)
{
    const struct sockaddr_nl *sender = message->msg_name;
    const struct cmsghdr *control = CMSG_FIRSTHDR(message);
    struct ucred credentials;

    if (message->msg_namelen < sizeof(*sender) || sender->nl_pid != 0 ||
        sender->nl_groups != KERNEL_GROUP)
        return false;
    if (!control || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_CREDENTIALS ||
        control->cmsg_len < CMSG_LEN(sizeof(credentials)))
        return false;
    memcpy(&credentials, CMSG_DATA(control), sizeof(credentials));
    return credentials.pid == 0 && credentials.uid == 0;
}

enum received { RECEIVED, RECEIVED_NOTHING, RECEIVED_TOO_MUCH, RECEIVED_FAILURE };

/* Receives one message and reports it; an interruption by a signal is not a failure. */
static enum received receive(struct watch_block *watch)
{
    static char data[MESSAGE_BYTES + 1];
    struct sockaddr_nl sender = {0};
    union credentials_space space;
    struct iovec part = {.iov_base = data, .iov_len = MESSAGE_BYTES};
    struct msghdr message = {
        .msg_name = &sender,
        .msg_namelen = sizeof(sender),
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = space.bytes,
        .msg_controllen = sizeof(space.bytes),
    };
    struct uevent event;
    ssize_t length = recvmsg(watch->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (length < 0)
        return errno == EAGAIN    ? RECEIVED_NOTHING
               : errno == ENOBUFS ? RECEIVED_TOO_MUCH
               : errno == EINTR   ? RECEIVED
                                  : RECEIVED_FAILURE;
    if (!is_from_kernel(&message))
        return RECEIVED;
    if (message.msg_flags & MSG_TRUNC)
        return RECEIVED_TOO_MUCH;
    data[length] = '\0';
    if (uevent_parse(data, (size_t)length, &event) < 0)
        return RECEIVED;
    watch->counters.events++;
    if (event.has_number && strcmp(event.subsystem, "block") == 0)
        watch->handler->queue_device(watch->userdata, event.major, event.minor);
    else if (event.capacity_changed && strcmp(event.subsystem, "scsi") == 0)
        watch->handler->capacity_changed(watch->userdata, event.devpath);
    return RECEIVED;
}

static void on_readable(struct loop_io *io, int events)
{
    struct watch_block *watch = container_of(io, struct watch_block, io);

    (void)events;
    for (int i = 0; i < BATCH; i++) {
        enum received received = receive(watch);

        if (received == RECEIVED_TOO_MUCH) {
            watch->counters.overflows++;
            watch->lost = true;
        } else if (received == RECEIVED_NOTHING) {
            if (watch->lost)
                watch->handler->queue_all_devices(watch->userdata);
            watch->lost = false;
            return;
        } else if (received == RECEIVED_FAILURE) {
            watch->counters.up = false;
            loop_io_stop(io);
            fd_close(watch->fd);
            watch->fd = -1;
            watch->handler->queue_all_devices(watch->userdata);
            return;
        }
    }
}

static int begin(struct watch_block *watch)
{
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = KERNEL_GROUP};
    const int bytes = watch->receive_bytes, on = 1;
    cleanup(fd_closep) int fd =
        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);

    if (fd < 0)
        return -errno;
    /* As large as permitted: beyond rmem_max only with CAP_NET_ADMIN. */
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) < 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
        bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        return -errno;
    watch->fd = take_fd(&fd);
    watch->counters.up = true;
    loop_io_start(watch->loop, &watch->io, watch->fd, LOOP_READ, on_readable);
    return 0;
}

int watch_block_new_sized(struct loop *loop, const struct watch_block_handler *handler,
                          void *userdata, int receive_bytes, struct watch_block **ret_watch)
{
    struct watch_block *watch = calloc(1, sizeof(*watch));

    if (!watch)
        return -ENOMEM;
    watch->loop = loop;
    watch->handler = handler;
    watch->userdata = userdata;
    watch->receive_bytes = receive_bytes;
    watch->fd = -1;
    (void)begin(watch);
    *ret_watch = watch;
    return 0;
}

void watch_block_check(struct watch_block *watch)
{
    if (!watch->counters.up)
        (void)begin(watch);
}

int watch_block_new(struct loop *loop, const struct watch_block_handler *handler, void *userdata,
                    struct watch_block **ret_watch)
{
    return watch_block_new_sized(loop, handler, userdata, RECEIVE_BYTES, ret_watch);
}

struct watch_block *watch_block_free(struct watch_block *watch)
{
    if (!watch)
        return NULL;
    loop_io_stop(&watch->io);
    fd_close(watch->fd);
    free(watch);
    return NULL;
}

const struct watch_counters *watch_block_counters(const struct watch_block *watch)
{
    return &watch->counters;
}
