/* SPDX-License-Identifier: Apache-2.0 */
/* agent_acts_fuzz.c - whole jobs with an agent in a guest, which answers what the input says:
 * walks along the routes, drives and runs of a container, from the request to the reply that the
 * daemon has checked.
 *
 * The first byte chooses the job. Then there is an answer to each request: its length, its status
 * (of a google.rpc.Code; 255: what follows is sent as it is) and its payload or message.
 */
#include <endian.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_client.h"
#include "agent-client/container_run.h"
#include "agent-client/drive_client.h"
#include "agent-client/guest_call.h"
#include "lib/clock.h"
#include "lib/text.h"
#include "lib/workers.h"

#define SERIAL "crust-abcdefghijk237"

enum { RAW = 255, JOBS = 9, MOST_BYTES = 1 << 20 };

static const uint8_t *script, *script_end;
static unsigned done_count;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* ---- what stands before the real ones ---- */

int peer_connect(struct peer *peer, int root, const char *path, const struct listener *listener,
                 uint64_t deadline_ns, size_t most, struct error *error)
{
    (void)root, (void)path, (void)listener, (void)error;
    *peer = (struct peer){
        .fd = -1, .deadline_ns = deadline_ns, .most = most, .input = BUFFER_INIT(most)};
    return 0;
}

/* Puts the answer into the input. */
int peer_send(struct peer *peer, const void *data, size_t length, int fd, struct error *error)
{
    size_t left = (size_t)(script_end - script), bytes;
    struct ttrpc_status status = {.code = 0};
    uint32_t stream;

    (void)fd, (void)error;
    must(length >= TTRPC_HEADER_BYTES);
    if (left < 2)
        return 0;
    bytes = script[0] < left - 2 ? script[0] : left - 2;
    status.code = script[1];
    script += 2;
    memcpy(&stream, (const char *)data + 4, sizeof(stream));
    (void)snprintf(status.message, sizeof(status.message), "%.*s", (int)bytes,
                   (const char *)script);
    must((status.code == RAW
              ? buffer_append(&peer->input, script, bytes)
              : ttrpc_append_response(&peer->input, be32toh(stream), &status, script, bytes)) == 0);
    script += bytes;
    return 0;
}

int peer_receive(struct peer *peer, struct error *error)
{
    (void)peer;
    return error_set(error, PEER_CLOSED, "the connection was closed");
}

static struct job *running;
static struct buffer answered;
static struct loop_timer *waiting;

int job_start(struct job *job, const struct job_request *request)
{
    const struct job_input input = {
        request->data, request->length, {-1, -1}, clock_boottime() + request->allowed_ns};

    buffer_init(&answered, JOB_REPLY_BYTES);
    job->request = *request;
    request->act(&input, &answered);
    must(buffer_error(&answered) == 0 && !running);
    running = job;
    return 0;
}

void job_cancel(struct job *job)
{
    (void)job;
}

void loop_timer_start(struct loop *loop, struct loop_timer *timer, uint64_t nanoseconds,
                      void (*callback)(struct loop_timer *timer))
{
    (void)loop, (void)nanoseconds;
    timer->callback = callback;
    waiting = timer;
}

void loop_timer_stop(struct loop_timer *timer)
{
    (void)timer;
}

static void run(void)
{
    while (waiting || running) {
        struct loop_timer *timer = waiting;
        struct job *job = running;
        struct buffer reply = answered;

        waiting = NULL;
        running = NULL;
        if (timer) {
            timer->callback(timer);
            continue;
        }
        job->request.done(job, JOB_ANSWERED, buffer_text(&reply), reply.length);
        buffer_done(&reply);
    }
}

/* An honest worker's reply is one. */
const char *job_fault_text(enum job_end end)
{
    (void)end;
    abort();
}

/* ---- the jobs ---- */

static void expect_text(bool is_done, const struct error *error)
{
    done_count++;
    must(is_done == !error->text[0]);
    must(text_is_utf8(error->text, strlen(error->text)) && !strpbrk(error->text, "\n\r\x1b"));
}

static void on_walk(struct guest_call *call, const struct guest_reply *reply, void *userdata)
{
    (void)call, (void)userdata;
    done_count++;
    must(reply->reason != REASON_NONE || !reply->error.text[0]);
    must(text_is_utf8(reply->error.text, strlen(reply->error.text)));
    must(!reply->stats.has_bytes || reply->stats.total <= MOST_BYTES);
}

static void on_drive(struct drive_client *client, const struct drive_client_reply *reply,
                     void *userdata)
{
    (void)client, (void)userdata;
    expect_text(reply->status == STATUS_OK, &reply->error);
    must(!reply->entry.serial[0] || strcmp(reply->entry.serial, SERIAL) == 0);
}

static void on_run(struct container_run *run, const struct container_reply *reply, void *userdata)
{
    (void)run, (void)userdata;
    expect_text(reply->kind == CONTAINER_DONE, &reply->error);
    must(!reply->left == !reply->removal_error.text[0]);
    must(!reply->held || (reply->kind == CONTAINER_DONE && !reply->left));
}

static bool has_no_helper(void *owner)
{
    (void)owner;
    return false;
}

static void walk(bool resizes)
{
    static const struct guest_helper_ops helper = {.is_possible = has_no_helper};
    char address[] = "unix:///a";
    const struct guest_request request = {.resizes = resizes,
                                          .order = {ROUTE_AGENT},
                                          .agent_address = address,
                                          .agent_address_size = sizeof(address),
                                          .guest_path = "/v",
                                          .helper = &helper,
                                          .most_bytes = MOST_BYTES,
                                          .ends_at = clock_boottime() + NSEC_PER_SEC};
    struct guest_call *call;

    must(guest_call_new(NULL, &request, on_walk, NULL, &call) == 0);
    run();
    (void)guest_call_free(call);
}

static void call_drives(enum drive_client_act act)
{
    static const struct drive_mount_request drive = {
        .drive_id = "d", .serial = SERIAL, .bytes = 1, .vm_path = "/v"};
    const struct drive_client_request request = {
        .act = act, .address = "unix:///a", .drive = &drive, .allowed_ns = NSEC_PER_SEC};
    struct drive_client *client;

    must(drive_client_new(&request, on_drive, NULL, &client) == 0);
    run();
    (void)drive_client_free(client);
}

static void run_container(enum container_act act)
{
    const struct container_request request = {.act = act,
                                              .address = "unix:///a",
                                              .container_id = "crust-1",
                                              .directory = "/d",
                                              .program = "p",
                                              .step_ns = NSEC_PER_SEC,
                                              .program_ns = NSEC_PER_SEC,
                                              .total_ns = NSEC_PER_SEC};
    struct container_run *container;

    must(container_run_new(&request, on_run, NULL, &container) == 0);
    run();
    (void)container_run_free(container);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned choice = size ? *data % JOBS : 0;

    script = data + (size ? 1 : 0);
    script_end = data + size;
    done_count = 0;
    if (choice < 2)
        walk(choice == 1);
    else if (choice < 5)
        call_drives((enum drive_client_act)(choice - 2));
    else if (choice < 8)
        run_container((enum container_act)(choice - 5));
    else
        call_drives(DRIVE_CLIENT_GROW);
    must(done_count == 1);
    return 0;
}
