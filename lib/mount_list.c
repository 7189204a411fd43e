/* SPDX-License-Identifier: Apache-2.0 */
/* mount_list.c - see mount_table.h.
 *
 * Source: include/uapi/linux/mount.h, which older headers lack. The numbers of the system calls are
 * the same on all architectures that crustd is built for.
 */
#include "lib/mount_table.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/clock.h"

#ifndef SYS_statmount
#define SYS_statmount 457
#define SYS_listmount 458
#endif

#define ROOT      UINT64_MAX     /* LSMT_ROOT */
#define OF_MOUNT  UINT64_C(0x2)  /* STATMOUNT_MNT_BASIC */
#define OF_POINT  UINT64_C(0x10) /* STATMOUNT_MNT_POINT */
#define OF_SYSTEM UINT64_C(0x20) /* STATMOUNT_FS_TYPE */

enum { BATCH = 256, MOST = 128 * 1024 };

/* What statmount(2) fails with. */
enum status_failure {
    STATUS_GONE = -ENOENT,
    STATUS_TOO_LONG = -EOVERFLOW,      /* for `text` */
    STATUS_TOO_LONG_FOR_ALL = -EAGAIN, /* for the kernel's own buffer */
};

/* Processor time. A name of 3.5 KiB takes 40 us; others' mounts are renamed to any length. */
static const uint64_t MOST_NS = 100 * NSEC_PER_MSEC;

struct request {
    uint32_t size, spare;
    uint64_t mount, param;
};

/* struct statmount. Strings are offsets into the text. */
struct status {
    uint32_t size, options;
    uint64_t mask;
    uint32_t super_block[2];
    uint64_t magic;
    uint32_t flags, file_system;
    uint64_t unique_id, unique_parent;
    uint32_t id, parent; /* as mountinfo has them */
    uint64_t attributes[5];
    uint32_t root, point;
    uint64_t spare[50];
    char text[PATH_MAX + NAME_MAX + 64];
};

_Static_assert(offsetof(struct status, text) == 512, "struct statmount of the kernel");

struct listing {
    enum mount_list_want (*want)(const char *file_system);
    int (*visit)(void *userdata, uint64_t id, const char *mount_point);
    void *userdata;
    uint64_t began_ns;
    struct status status;
};

/* The kernel ends each string that it gives with a NUL. */
static const char *text_of(const struct status *status, uint64_t what, uint32_t offset)
{
    return (status->mask & what) && offset < sizeof(status->text) ? status->text + offset : "";
}

static int read_status(struct listing *listing, uint64_t mount, uint64_t what)
{
    const struct request request = {.size = sizeof(request), .mount = mount, .param = what};

    return syscall(SYS_statmount, &request, &listing->status, sizeof(listing->status), 0) < 0
               ? -errno
               : 0;
}

/* One that the table would not list has no name. */
static int list_name(struct listing *listing, uint64_t mount, uint64_t id)
{
    const char *point;
    int r;

    if (clock_processor() - listing->began_ns > MOST_NS)
        return -ETIME;
    r = read_status(listing, mount, OF_POINT);
    if (r == STATUS_TOO_LONG || r == STATUS_TOO_LONG_FOR_ALL)
        return listing->visit(listing->userdata, id, NULL);
    if (r < 0)
        return r;
    point = text_of(&listing->status, OF_POINT, listing->status.point);
    return point[0] ? listing->visit(listing->userdata, id, point) : 0;
}

/* A mount may be gone by now. */
static int list_mount(struct listing *listing, uint64_t mount)
{
    const struct status *status = &listing->status;
    int r = read_status(listing, mount, OF_MOUNT | OF_SYSTEM);

    if (r < 0)
        return r == STATUS_GONE ? 0 : r;
    switch (listing->want(text_of(status, OF_SYSTEM, status->file_system))) {
    case MOUNT_LIST_NOTHING:
        return 0;
    case MOUNT_LIST_ID:
        return listing->visit(listing->userdata, status->id, NULL);
    case MOUNT_LIST_NAME:
        break;
    }
    r = list_name(listing, mount, status->id);
    return r == STATUS_GONE ? 0 : r;
}

int mount_list_each(enum mount_list_want (*want)(const char *file_system),
                    int (*visit)(void *userdata, uint64_t id, const char *mount_point),
                    void *userdata)
{
    struct listing listing = {
        .want = want, .visit = visit, .userdata = userdata, .began_ns = clock_processor()};
    struct request request = {.size = sizeof(request), .mount = ROOT};
    uint64_t mounts[BATCH];
    int r = 0;

    for (unsigned batch = 0; batch < MOST / BATCH; batch++) {
        long count = syscall(SYS_listmount, &request, mounts, BATCH, 0);

        if (count <= 0)
            return count < 0 ? -errno : 0;
        for (long i = 0; r == 0 && i < count; i++)
            r = list_mount(&listing, mounts[i]);
        if (r != 0)
            return r;
        request.param = mounts[count - 1];
    }
    return BUFFER_FULL;
}
