/* SPDX-License-Identifier: Apache-2.0 */
/* drive_listing.c - the process writes a header and the entries as they are in memory. */
#include "guest-agent/drive_listing.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest-agent/drive_list.h"
#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/path.h"

#define LONGEST_NS (5 * NSEC_PER_SEC)

struct head {
    int result; /* the result of drive_list_read() */
    bool incomplete;
    size_t count;
};

struct drive_listing {
    struct child *child;
    drive_listing_done *done;
    void *userdata;
};

/* In the child. */
static int list_drives(const void *argument)
{
    struct drive_guest_list list = {0};
    struct head head = {.result = drive_list_read(&list)};
    int r;

    (void)argument;
    head.incomplete = list.incomplete;
    head.count = list.count;
    r = path_write(STDOUT_FILENO, (const char *)&head, sizeof(head));
    if (r == 0)
        r = path_write(STDOUT_FILENO, (const char *)list.entries,
                       list.count * sizeof(*list.entries));
    drive_guest_list_done(&list);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* 0 or -errno. */
static int take(const struct buffer *output, struct drive_guest_list *ret_list)
{
    struct head head;
    size_t length = output->length - sizeof(head);

    if (output->length < sizeof(head))
        return -EBADMSG;
    memcpy(&head, output->data, sizeof(head));
    if (head.result < 0)
        return head.result;
    if (length != head.count * sizeof(*ret_list->entries))
        return -EBADMSG;
    ret_list->entries = malloc(length + 1);
    if (!ret_list->entries)
        return -ENOMEM;
    memcpy(ret_list->entries, output->data + sizeof(head), length);
    ret_list->count = head.count;
    ret_list->incomplete = head.incomplete;
    return 0;
}

static void on_end(struct child *child, enum child_end end, int status, const struct buffer *output,
                   void *userdata)
{
    struct drive_listing *listing = userdata;
    struct drive_guest_list list = {0};
    struct error error = {0};
    int r = end == CHILD_EXITED && status == EXIT_SUCCESS ? take(output, &list) : -EIO;

    listing->child = child_free(child);
    if (end == CHILD_TIMEOUT)
        (void)error_set(&error, r, "a disk of the guest does not say which serial it has");
    else if (r < 0)
        (void)error_set_errno(&error, r, "cannot list the drives");
    listing->done(listing, r, &list, &error, listing->userdata);
    drive_guest_list_done(&list);
}

int drive_listing_new(struct loop *loop, uint64_t timeout_ns, drive_listing_done *done,
                      void *userdata, struct drive_listing **ret_listing)
{
    const struct child_request request = {
        .function = list_drives,
        .output_limit = sizeof(struct head) + DRIVE_LIST * sizeof(struct drive_guest_entry),
        .input = -1,
        .root = -1,
        .deadline_ns = timeout_ns && timeout_ns / 2 < LONGEST_NS ? timeout_ns / 2 : LONGEST_NS,
        .subject = child_subject("serials"),
    };
    struct drive_listing *listing = calloc(1, sizeof(*listing));
    int r;

    if (!listing)
        return -ENOMEM;
    listing->done = done;
    listing->userdata = userdata;
    r = child_new(loop, &request, on_end, listing, &listing->child);
    if (r < 0) {
        free(listing);
        return r;
    }
    *ret_listing = listing;
    return 0;
}

struct drive_listing *drive_listing_free(struct drive_listing *listing)
{
    if (!listing)
        return NULL;
    listing->child = child_free(listing->child);
    free(listing);
    return NULL;
}
