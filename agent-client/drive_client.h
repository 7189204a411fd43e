/* SPDX-License-Identifier: Apache-2.0 */
/* drive_client.h - one call of crust.guest.v1.Drives to crust-guest-agent in a guest.
 *
 * One call is one ttrpc request on a connection of its own to an address of agent_address.h. The
 * request contains its timeout, so that the agent answers in time; work that the agent has begun
 * continues without a client.
 */
#pragma once

#include "agent-client/drive_call.h"
#include "lib/listener.h"
#include "lib/loop.h"
#include "lib/result.h"

enum drive_client_act {
    DRIVE_CLIENT_MOUNT,
    DRIVE_CLIENT_UNMOUNT,
    DRIVE_CLIENT_LIST,
};

enum drive_client_outcome {
    DRIVE_CLIENT_ANSWERED,    /* `status` is that of the agent */
    DRIVE_CLIENT_UNSUPPORTED, /* the agent does not know the call: FAILED_PRECONDITION */
    DRIVE_CLIENT_ABSENT,      /* nothing listens there, so nothing was sent: UNAVAILABLE */
    /* No connection in time, or none that could be tried; closed, an invalid answer, or a listener
     * that is not believed (listener.h), to which nothing was sent: UNAVAILABLE */
    DRIVE_CLIENT_UNREACHABLE,
    DRIVE_CLIENT_SILENT, /* no answer in time: UNAVAILABLE */
};

struct drive_client_request {
    enum drive_client_act act;
    int root;                 /* O_PATH of --root; borrowed until done */
    const char *address;      /* copied */
    struct listener listener; /* who may listen on a unix socket at the address */
    /* For MOUNT and UNMOUNT; copied; their timeout_ms is ignored. */
    const struct drive_mount_request *mount;
    const struct drive_unmount_request *unmount;
    bool without_disks;   /* LIST: only what the agent is mounting or unmounting, at once */
    uint64_t deadline_ns; /* from now, for the whole call */
};

struct drive_client_reply {
    enum drive_client_outcome outcome;
    enum status_code status;         /* OK, or as drive_call.h lists them; INTERNAL for any other */
    struct error error;              /* for people, when not OK */
    struct drive_mount_answer mount; /* MOUNT and OK */
    struct drive_unmount_answer unmount; /* UNMOUNT and OK */
    struct drive_guest_list list;        /* LIST and OK; borrowed for the callback */
};

struct drive_client;

typedef void drive_client_done(struct drive_client *client, const struct drive_client_reply *reply,
                               void *userdata);

/* Exactly one `done` from the loop, never from within; the owner frees the client then or later. 0
 * or -ENOMEM; a bad address or request is reported through done as ABSENT. */
int drive_client_new(struct loop *loop, const struct drive_client_request *request,
                     drive_client_done *done, void *userdata, struct drive_client **ret_client);

struct drive_client *drive_client_free(struct drive_client *client); /* NULL; ends a running call */
