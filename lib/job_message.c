/* SPDX-License-Identifier: Apache-2.0 */
/* job_message.c - see workers.h. */
#include "lib/workers.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/text.h"

/* The struct is first, so no text has the offset 0, which is NULL. */
int job_start_message(struct job *job, const struct job_message *message,
                      struct job_request job_request)
{
    cleanup(buffer_done) struct buffer bytes = BUFFER_INIT(JOB_REQUEST_BYTES);

    (void)buffer_append(&bytes, message->request, message->size);
    for (const struct job_texts *texts = message->texts; texts->count; texts++)
        for (size_t i = 0; i < texts->count; i++) {
            const size_t place = texts->offset + i * sizeof(char *), offset = bytes.length;
            const char *text;

            memcpy(&text, (const char *)message->request + place, sizeof(text));
            if (!text || buffer_append(&bytes, text, strlen(text) + 1) < 0)
                continue;
            memcpy(bytes.data + place, &offset, sizeof(offset));
        }
    (void)buffer_append(&bytes, message->bytes, message->length);
    if (buffer_error(&bytes) < 0)
        return buffer_error(&bytes);
    job_request.data = bytes.data;
    job_request.length = bytes.length;
    return job_start(job, &job_request);
}

int job_new(size_t size, const struct job_message *message, struct job_request job_request,
            struct job **ret_job)
{
    struct job *job = calloc(1, size);
    int r = job ? job_start_message(job, message, job_request) : -ENOMEM;

    if (r < 0)
        free(job);
    else
        *ret_job = job;
    return r;
}

void *job_free(struct job *job)
{
    if (job)
        job_cancel(job);
    free(job);
    return NULL;
}

void job_read_message(const struct job_input *input, const struct job_texts *texts,
                      void *ret_request, size_t size)
{
    memcpy(ret_request, input->request, size);
    for (; texts->count; texts++)
        for (size_t i = 0; i < texts->count; i++) {
            char *place = (char *)ret_request + texts->offset + i * sizeof(char *);
            const char *text;
            size_t offset;

            memcpy(&offset, place, sizeof(offset));
            text = offset ? (const char *)input->request + offset : NULL;
            memcpy(place, &text, sizeof(text));
        }
}

bool job_take_reply(const void *bytes, size_t length, void *ret_reply, size_t size)
{
    if (length < size)
        return false;
    memcpy(ret_reply, bytes, size);
    return true;
}

bool job_text_fits(const char *field, size_t size)
{
    return memchr(field, '\0', size);
}

bool job_is_flag(const bool *field)
{
    unsigned char byte;

    memcpy(&byte, field, 1);
    return byte <= 1;
}

bool job_is_error(struct error *error)
{
    char text[ERROR_TEXT_BYTES];

    if (!job_is_text(error->text))
        return false;
    text_clean(error->text, strlen(error->text), text, sizeof(text));
    memcpy(error->text, text, sizeof(text));
    return true;
}

const char *job_fault_text(enum job_end end)
{
    static const char *const texts[] = {
        [JOB_ANSWERED] = "a worker process sent what is no reply",
        [JOB_LATE] = "no answer in time",
        [JOB_DIED] = "the worker process that asked has died",
        [JOB_WAITED] = "no worker process was free in time",
    };

    return texts[end];
}
