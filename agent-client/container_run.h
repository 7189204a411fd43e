/* SPDX-License-Identifier: Apache-2.0 */
/* container_run.h - one container of crustd's own in a guest, by the calls of kata-agent.
 *
 * The program is a static file in a directory of the guest: either of the share that the host also
 * sees, or one that CopyFile fills.
 *
 * The container has no mount namespace of its own: it is in that of the agent, whose mounts it sees
 * and changes for good, and in the guest's first pid namespace, so that it finds the processes of
 * all containers. It has ipc and uts namespaces of its own, no_new_privileges, and the capabilities
 * CAP_SYS_RESOURCE and CAP_SYS_ADMIN (and what for_drives gives). The agent then makes no mounts,
 * and the program is found by its path in the guest. (Tried with Kata 4.1.0.)
 *
 * Once CreateContainer is sent, something may be in the guest. However a run ends, it tries to kill
 * and remove its container (SignalProcess, WaitProcess, RemoveContainer), on a new connection:
 * closing the old one makes the agent drop the call that hangs, and with it the agent's lock, on
 * which the workload's own calls wait.
 *
 * Knows nothing of volumes or of the record. Sources: Kata 4.1.0 src/agent/src/rpc.rs and
 * src/libs/protocols/protos/{agent,oci}.proto; field numbers are the same from 2.5.0 on.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/peer.h"
#include "lib/result.h"

enum {
    CONTAINER_ID_BYTES = 64,         /* its NUL included */
    CONTAINER_ARGUMENTS = 80,        /* after the program's name */
    CONTAINER_OUTPUT_BYTES = 262144, /* more on standard output ends the run as FAILED */
    CONTAINER_ERRORS_BYTES = 4096,   /* what is beyond that on standard error is dropped */
    CONTAINER_PROGRAM_BYTES = 64 * 1024 * 1024, /* the largest program that is copied */
};

enum container_act {
    CONTAINER_RUN,
    /* As RUN, but the container stays as soon as the program has written a whole line, until
     * CLEAN_UP removes it. A program that is about to end does not end its line. */
    CONTAINER_HOLD,
    CONTAINER_CLEAN_UP, /* remove what an earlier run may have left under this id */
};

/* How far it came. */
enum container_step {
    CONTAINER_CONNECT,
    CONTAINER_COPY,   /* CopyFile */
    CONTAINER_CREATE, /* CreateContainer */
    CONTAINER_START,  /* StartContainer */
    CONTAINER_READ,   /* ReadStdout, ReadStderr: the program runs */
    CONTAINER_WAIT,   /* WaitProcess */
    CONTAINER_KILL,   /* SignalProcess */
    CONTAINER_REMOVE, /* RemoveContainer */
    CONTAINER_STEPS,
};

/* Where no cgroup is mounted at all, Kata 4.1.0 creates the container and then panics in
 * StartContainer and RemoveContainer, and answers neither: TIMED_OUT, and left. */
enum container_kind {
    CONTAINER_DONE,        /* RUN: the program has ended; HOLD: it has, or the container is held;
                              CLEAN_UP: the container is gone */
    CONTAINER_DENIED,      /* the guest's policy forbids the call of `step` */
    CONTAINER_UNSUPPORTED, /* the agent does not know the call */
    CONTAINER_UNREACHABLE, /* no connection, no handshake, closed, nonsense */
    CONTAINER_TIMED_OUT,   /* no answer within the time allowed, or the program did not end */
    CONTAINER_NO_CGROUPS,  /* the agent says that it cannot make the container's cgroup */
    CONTAINER_FAILED,      /* any other answer, too much output, an unreadable program file */
    CONTAINER_KINDS,
};

struct container_request {
    enum container_act act;
    int root;                 /* O_PATH of --root; borrowed until done */
    const char *address;      /* of the agent: vsock://, hvsock://, unix:// (agent_address.h) */
    struct listener listener; /* who may listen on a unix socket of that address */
    const char *container_id; /* letters, digits, dashes */

    /* As the agent sees it. RUN and HOLD need all of it. CLEAN_UP may have NULL for the directory;
     * with directory and program it also finds what a CreateContainer left that was cut off in its
     * middle and that RemoveContainer does not know: it creates the container once more, which
     * either rolls that back or makes one that can be removed. Nothing is started. So the
     * directory has to be removed after CLEAN_UP, and must not be given if it is not there. */
    const char *directory; /* absolute */
    const char *program;   /* its name in the directory, without a slash */
    /* The program goes into the directory by CopyFile before a RUN (`program_file`, borrowed until
     * done; the directories are made as well), and is emptied after it, also by CLEAN_UP. The agent
     * has no call that removes a file: use one directory again and again in such a guest. It must
     * be below /run/kata-containers/shared/containers/. */
    bool copied;
    int program_file;

    const char *arguments[CONTAINER_ARGUMENTS + 1]; /* what follows the program's name, then NULL */
    /* CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_SYS_CHROOT and CAP_SYS_PTRACE as
     * well: to give files to a group, and to enter containers. */
    bool for_drives;

    uint64_t step_ns;    /* for the answer to each call; for kill and remove too */
    uint64_t program_ns; /* for the program, from its start to its end */
    uint64_t total_ns;   /* for everything before killing and removing */
};

struct container_reply {
    enum container_kind kind;
    enum container_step step; /* where it ended; DONE: the last step before removing */
    struct error error;       /* for a person, when not DONE */
    bool held;                /* HOLD and DONE: the container stays; else its program has ended */
    int exit_status;          /* RUN or HOLD, DONE and not held */
    bool not_executed; /* DONE, but the guest could not execute the file: another architecture,
                          a program that is not static, a mount that forbids it */

    /* What the program wrote so far; borrowed for the callback. Empty
     * although the program always writes: the guest's policy hides it (where ReadStreamRequest is
     * not allowed, Kata from 3.15 on answers nothing; before that the call is denied). */
    const char *output;
    size_t output_length;
    const char *errors;
    size_t errors_length;

    /* Something may be in the guest under this id: CLEAN_UP is due, at a later time.
     * removal_error says why, whatever `kind` is; DONE and left is possible. */
    bool left;
    struct error removal_error;
};

struct container_run;

/* The run may be freed from within. */
typedef void container_done(struct container_run *run, const struct container_reply *reply,
                            void *userdata);

/* Runs in a worker (lib/workers.h), and copies the request's texts. Exactly one `done` from the
 * loop, never from within. 0 or -errno. */
int container_run_new(const struct container_request *request, container_done *done, void *userdata,
                      struct container_run **ret_run);

/* Returns NULL. Ends a running run at once: it sends nothing more, and its container stays in the
 * guest until the caller has it removed by CLEAN_UP. */
struct container_run *container_run_free(struct container_run *run);

/* ---- payloads ------------------------------------------------------------------------------- */

/* Private to agent-client/. Answers that are empty messages are not parsed. */

enum { CONTAINER_PIECE_BYTES = 256 * 1024 }; /* the agent takes up to 4 MiB in one request */

/* A piece of a file that is to be `file_bytes` long. */
struct container_copy {
    uint32_t mode; /* of the file, without its type */
    uint64_t file_bytes, offset;
    const void *data;
    size_t length;
};

/* Append to the buffer. 0, -EMSGSIZE, -ENOMEM; of a copy, -ENAMETOOLONG. number: the signal of
 * KILL, the most bytes of READ, else 0. */
int container_append_create(struct buffer *payload, const struct container_request *request);
int container_append_call(struct buffer *payload, enum container_step step,
                          const char *container_id, uint32_t number);
int container_append_copy(struct buffer *payload, const struct container_request *request,
                          const struct container_copy *copy);

/* 0; -EBADMSG: not such a message. container_parse_read() appends what was read, and also returns
 * -EMSGSIZE (unless it cuts what is too much) and -ENOMEM. *ret_end: nothing was. */
int container_parse_wait(const void *payload, size_t length, int *ret_status);
int container_parse_read(const void *payload, size_t length, bool cuts, struct buffer *bytes,
                         bool *ret_end);
