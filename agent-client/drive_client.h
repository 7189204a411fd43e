/* SPDX-License-Identifier: Apache-2.0 */
/* drive_client.h - one call about a drive of crustd's to crust-guest-agent in a guest: those of
 * crust.guest.v1.Drives, and ResizeVolume.
 *
 * One call is one ttrpc request on a connection of its own to an address of agent_address.h. The
 * request contains its timeout, so that the agent answers in time; work that the agent has begun
 * continues without a client.
 */
#pragma once

#include "agent-client/drive_call.h"
#include "lib/peer.h"
#include "lib/result.h"

enum drive_client_act {
    DRIVE_CLIENT_MOUNT,
    DRIVE_CLIENT_UNMOUNT,
    DRIVE_CLIENT_LIST,
    DRIVE_CLIENT_GROW, /* the file system, to the size of the disk */
    DRIVE_CLIENT_ACTS,
};

enum drive_client_outcome {
    DRIVE_CLIENT_ANSWERED,    /* `status` is that of the agent */
    DRIVE_CLIENT_UNSUPPORTED, /* the agent does not know the call: FAILED_PRECONDITION */
    DRIVE_CLIENT_ABSENT,      /* nothing listens there, so nothing was sent: UNAVAILABLE */
    DRIVE_CLIENT_FOREIGN, /* neither the VMM nor the shim listens there (lib/peer.h): nothing was
                             sent: UNAVAILABLE */
    /* No connection in time, or none that could be tried; closed, or an invalid answer:
     * UNAVAILABLE */
    DRIVE_CLIENT_UNREACHABLE,
    DRIVE_CLIENT_SILENT, /* no answer in time: UNAVAILABLE */
    DRIVE_CLIENT_OUTCOMES,
};

struct drive_client_request {
    enum drive_client_act act;
    int root;                                /* O_PATH of --root; borrowed until done */
    const char *address;                     /* copied */
    struct listener listener;                /* who may listen on a unix socket at the address */
    const struct drive_mount_request *drive; /* as it is mounted; copied */
    bool without_disks;  /* LIST: only what the agent is mounting or unmounting, at once */
    uint64_t allowed_ns; /* for the whole call, as the drive's timeout_ms says it to the agent */
};

struct drive_client_reply {
    enum drive_client_outcome outcome;
    enum status_code status;         /* OK, or as drive_call.h lists them; INTERNAL for any other */
    struct error error;              /* for people, when not OK */
    struct drive_mount_answer mount; /* MOUNT and OK */
    struct drive_unmount_answer unmount; /* UNMOUNT and OK */
    /* LIST and OK: the drive, by its serial, which is "" if it is not in the list. */
    struct drive_guest_entry entry;
    bool is_incomplete; /* the list */
};

struct drive_client;

typedef void drive_client_done(struct drive_client *client, const struct drive_client_reply *reply,
                               void *userdata);

/* Runs in a worker (lib/workers.h). Exactly one `done` from the loop, never from within; the owner
 * frees the client then or later. 0 or -errno; a bad address is reported through done as ABSENT. */
int drive_client_new(const struct drive_client_request *request, drive_client_done *done,
                     void *userdata, struct drive_client **ret_client);

struct drive_client *drive_client_free(struct drive_client *client); /* NULL; ends a running call */

/* In a worker: the whole call, blocking, with the encoded request. */
void drive_client_run(const struct drive_client_request *request, const char *serial,
                      const struct buffer *payload, uint64_t until_ns,
                      struct drive_client_reply *ret_reply);

/* The same call as a text, for a helper in a container (guest-agent/oneshot.h, --drive), and its
 * answer, which may end with a newline. Not for GROW. 0, -EMSGSIZE, -ENOMEM. */
int drive_client_make_text(const struct drive_client_request *request, char **ret_text);
void drive_client_read_text(enum drive_client_act act, const char *serial, const char *text,
                            size_t length, struct drive_client_reply *ret_reply);
