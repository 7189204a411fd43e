/* SPDX-License-Identifier: Apache-2.0 */
/* call.c - a call's time and its end. */
#include "api/call.h"

#include <stdio.h>

#include "lib/cleanup.h"
#include "lib/clock.h"

/* ---- a call ends ---- */

static void end(struct call *call, const struct call_answer *answer)
{
    const struct call ended = *call;
    enum status_code code;

    loop_timer_stop(&call->deadline);
    code = ended.finish(call, answer);
    operations_note(ended.surroundings->operations, ended.method, code, ended.began_ns);
}

void call_reply(struct call *call, const ProtobufCMessage *reply)
{
    end(call, &(struct call_answer){.code = STATUS_OK, .reply = reply});
}

void call_reply_packed(struct call *call, const struct buffer *packed)
{
    end(call, &(struct call_answer){.code = STATUS_OK, .packed = packed});
}

void call_fail(struct call *call, enum status_code code, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    end(call, &(struct call_answer){.code = code, .text = text});
}

void call_end(struct call *call, enum status_code code, const ProtobufCMessage *reply,
              const struct error *error)
{
    if (code == STATUS_OK)
        call_reply(call, reply);
    else
        call_fail(call, code, "%s", error->text);
}

void call_cancel(struct call *call)
{
    loop_timer_stop(&call->deadline);
    call->cancel(call->work);
    operations_note(call->surroundings->operations, call->method, STATUS_CANCELLED, call->began_ns);
}

static void on_deadline(struct loop_timer *timer)
{
    struct call *call = container_of(timer, struct call, deadline);

    call->cancel(call->work);
    call_fail(call, STATUS_DEADLINE_EXCEEDED,
              "not done within the time of the call; what was begun goes on");
}

void call_wait_or_fail(struct call *call, enum status_code code, void (*cancel)(void *work),
                       void *work, const struct error *error)
{
    const uint64_t passed = clock_boottime() - call->began_ns;

    if (code != STATUS_OK) {
        call_fail(call, code, "%s", error->text);
        return;
    }
    call->cancel = cancel;
    call->work = work;
    loop_timer_start(call->surroundings->loop, &call->deadline,
                     call->timeout_ns > passed ? call->timeout_ns - passed : 0, on_deadline);
}
