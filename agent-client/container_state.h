/* SPDX-License-Identifier: Apache-2.0 */
/* container_state.h - the state of a run. Private to agent-client/.
 *
 * container_run.c begins a run and knows what follows a call of its first half, container_step.c
 * what follows one that removes, container_step.c makes the calls.
 */
#pragma once

#include "agent-client/agent_session.h"
#include "agent-client/container_request.h"
#include "agent-client/container_run.h"
#include "lib/buffer.h"

/* What is known of the container in the guest. */
enum presence {
    PRESENCE_NONE,
    PRESENCE_ASKED, /* CreateContainer was sent and not answered */
    PRESENCE_MADE,  /* it was answered */
};

struct container_run {
    struct loop *loop;
    struct container_order order;
    container_done *done;
    void *userdata;
    struct loop_timer beginning;
    struct agent_session session;
    bool connected; /* the session has been started */

    enum container_step step;
    bool cleaning;
    enum presence presence;
    bool ended;          /* the program's end was seen */
    bool reading_errors; /* READ: of standard error */
    bool created_again;  /* CLEAN_UP */
    bool reconnected;    /* RemoveContainer is on its second connection */

    struct container_copier copier;
    bool copying; /* the program may be there, to be emptied in the end */
    bool swept;   /* and no temporary file beside it */

    uint64_t ends_at;         /* total_ns, on clock_boottime() */
    uint64_t program_ends_at; /* program_ns */

    struct buffer output;
    struct buffer errors;
    struct container_reply reply;
};

/* ---- container_step.c ---- */

/* Makes the call of a step, on a new connection if there is none. */
void container_run_step(struct container_run *run, enum container_step step);
const char *container_call_name(const struct container_run *run);
uint64_t container_least(uint64_t one, uint64_t other);

/* ---- container_run.c ---- */

extern const struct agent_session_handler container_session_handler;
void container_run_disconnect(struct container_run *run);
/* The owner may free the run in here: nothing follows it. */
void container_run_finish(struct container_run *run);
/* The first half of a RUN, or CLEAN_UP altogether, ends here; run_settle: the error is filled in.
 */
void container_run_settle(struct container_run *run, enum container_kind kind);
void container_run_fail(struct container_run *run, enum container_kind kind, const char *text);
void container_describe(const struct container_run *run, struct error *error,
                        enum container_kind kind, const char *text);
void container_describe_status(const struct container_run *run, struct error *error,
                               enum container_kind kind, const struct ttrpc_status *status);

/* ---- container_step.c ---- */

/* The container, as far as there may be one, and then what else there is to remove. */
void container_run_clean(struct container_run *run);
/* KILL and WAIT are for the sake of REMOVE, which is called whatever they come to. */
bool container_only_prepares(enum container_step step);
void container_run_go_on_removing(struct container_run *run, bool answered);
/* While cleaning there is no answer to the call under way; there is one. */
void container_clean_lost(struct container_run *run, enum agent_session_end end, const char *text);
void container_clean_answered(struct container_run *run, const struct ttrpc_status *status);
/* A call of CLEAN_UP was answered, other than the one that empties the program. */
void container_clean_up_answered(struct container_run *run, const struct ttrpc_status *status);
