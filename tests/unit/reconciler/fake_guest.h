/* SPDX-License-Identifier: Apache-2.0 */
/* fake_guest.h - a guest that answers when the test says so; in place of agent-client/guest_call.c.
 */
#pragma once

#include "tests/unit/reconciler/fake_call.h"

#include "agent-client/guest_call.h"

struct guest_call {
    guest_done *done;
    void *userdata;
    struct guest_request request;
};

static struct guest_call *fake_guest; /* the last that was called and has not been freed */

int guest_call_new(struct loop *loop, const struct guest_request *request, guest_done *done,
                   void *userdata, struct guest_call **ret_call)
{
    *ret_call = fake_guest = fake_call_make(sizeof(**ret_call));
    *fake_guest = (struct guest_call){done, userdata, *request};
    return 0;
}

FAKE_CALL_FREE(guest_call, guest_call_free, fake_guest)

static inline void guest_answers(const struct guest_reply *reply)
{
    assert_non_null(fake_guest);
    fake_guest->done(fake_guest, reply, fake_guest->userdata);
    assert_null(fake_guest);
}
