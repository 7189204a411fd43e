/* SPDX-License-Identifier: Apache-2.0 */
/* api_post.c - one POST to the API server, in a worker; see kubernetes_events.h. */
#include "reconciler/kubernetes/kubernetes_events.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/workers.h"

enum { ANSWER_BYTES = 16 * 1024 };
static const uint64_t DEADLINE_NS = 10 * NSEC_PER_SEC;

/* ---- in the worker ---- */

struct request {
    struct http_exchange_tls tls;
    const char *target, *body;
};

static const struct job_texts texts[] = {
    {offsetof(struct request, tls.address), 1}, {offsetof(struct request, tls.ca_file), 1},
    {offsetof(struct request, tls.token), 1},   {offsetof(struct request, target), 1},
    {offsetof(struct request, body), 1},        {0, 0},
};

/* The body follows. */
struct reply {
    enum http_exchange_end end;
    unsigned status;
    struct error error;
};

static void post_act(const struct job_input *input, struct buffer *ret_reply)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(0);
    struct http_exchange_request exchange;
    struct reply reply = {.status = 0};
    struct request request;

    job_read_message(input, texts, &request, sizeof(request));
    request.tls.socket = input->fds[0];
    exchange = (struct http_exchange_request){.tls = &request.tls,
                                              .method = "POST",
                                              .target = request.target,
                                              .body = request.body,
                                              .body_limit = ANSWER_BYTES};
    reply.end =
        http_exchange_perform(&exchange, input->deadline_ns, &reply.status, &body, &reply.error);
    (void)buffer_append(ret_reply, &reply, sizeof(reply));
    (void)buffer_append(ret_reply, buffer_text(&body), body.length);
}

/* ---- in the daemon ---- */

struct api_post {
    struct job job;
    int socket;
    api_post_done *done;
    void *userdata;
};

static void on_job_done(struct job *job, enum job_end end, const void *bytes, size_t length)
{
    struct api_post *post = container_of(job, struct api_post, job);
    struct api_answer answer = {.end =
                                    end == JOB_LATE ? HTTP_EXCHANGE_TIMEOUT : HTTP_EXCHANGE_FAILED};
    struct reply reply;

    if (end == JOB_ANSWERED && job_take_reply(bytes, length, &reply, sizeof(reply)) &&
        (unsigned)reply.end < HTTP_EXCHANGE_ENDS && job_is_error(&reply.error))
        answer = (struct api_answer){.end = reply.end,
                                     .status = reply.status,
                                     .body = (const char *)bytes + sizeof(reply),
                                     .length = length - sizeof(reply),
                                     .error = reply.error};
    else
        (void)error_set(&answer.error, (int)answer.end, "%s", job_fault_text(end));
    post->done(post, &answer, post->userdata);
}

int api_post_new(const struct service_account *account, const char *token, const char *target,
                 const char *body, api_post_done *done, void *userdata, struct api_post **ret_post)
{
    const struct request request = {.tls = {.address = account->address,
                                            .port = account->port,
                                            .ca_file = account->ca_file,
                                            .token = token},
                                    .target = target,
                                    .body = body};
    cleanup(fd_closep) int fd =
        socket(strchr(account->address, ':') ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct job *job;
    int r = fd < 0 ? -errno
                   : job_new(sizeof(**ret_post),
                             &(struct job_message){&request, sizeof(request), texts, NULL, 0},
                             (struct job_request){.act = post_act,
                                                  .fds = {fd, -1},
                                                  .allowed_ns = DEADLINE_NS,
                                                  .done = on_job_done},
                             &job);

    if (r < 0)
        return r;
    *ret_post = container_of(job, struct api_post, job);
    (*ret_post)->socket = take_fd(&fd);
    (*ret_post)->done = done;
    (*ret_post)->userdata = userdata;
    return 0;
}

struct api_post *api_post_free(struct api_post *post)
{
    if (post)
        fd_close(post->socket);
    return job_free(post ? &post->job : NULL);
}
