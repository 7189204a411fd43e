/* SPDX-License-Identifier: Apache-2.0 */
/* agent_job.h - the calls of agent_client.h and shim_client.h in a worker, as their callers make
 * them. */
#pragma once

#include "tests/unit/test.h"

#include "agent-client/agent_client.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/loop.h"
#include "lib/workers.h"

static struct {
    struct loop *loop;
    unsigned calls;
    enum job_end end;
    char reply[sizeof(struct agent_reply)];
    size_t length;
} answered;

static const struct job_texts agent_texts[] = {
    {offsetof(struct agent_request, address), 1},
    {offsetof(struct agent_request, listener.sandbox_id), 1},
    {offsetof(struct agent_request, volume), 1},
    {0, 0},
};

static inline void read_request(const struct job_input *input, struct agent_request *ret_request)
{
    job_read_message(input, agent_texts, ret_request, sizeof(*ret_request));
    ret_request->root = input->fds[0];
}

static inline void on_answered(struct job *job, enum job_end end, const void *reply, size_t length)
{
    answered.calls++;
    answered.end = end;
    answered.length = length;
    assert_in_range(length, 0, sizeof(answered.reply));
    if (length)
        memcpy(answered.reply, reply, length);
    loop_stop(answered.loop);
}

static inline void start_in_worker(struct loop *in, const struct agent_request *request,
                                   job_act *act, struct job *job)
{
    const struct job_message message = {request, sizeof(*request), agent_texts, NULL, 0};

    answered.loop = in;
    answered.calls = 0;
    assert_int_equal(job_start_message(job, &message,
                                       (struct job_request){.act = act,
                                                            .fds = {request->root, -1},
                                                            .allowed_ns = request->allowed_ns,
                                                            .done = on_answered}),
                     0);
}

static inline struct agent_reply run_in_worker(struct loop *in, const struct agent_request *request,
                                               job_act *act)
{
    struct agent_reply reply = {.outcome = AGENT_OUTCOMES};
    struct job job = {.is_running = false};

    start_in_worker(in, request, act, &job);
    loop_run(in);
    assert_int_equal(answered.calls, 1);
    if (answered.length == sizeof(reply))
        memcpy(&reply, answered.reply, sizeof(reply));
    return reply;
}
