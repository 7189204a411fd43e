/* SPDX-License-Identifier: Apache-2.0 */
/* fake_vmm.h - a VMM that answers when the test says so; in place of hypervisor/hypervisor.c. */
#pragma once

#include "tests/unit/reconciler/fake_call.h"

#include "hypervisor/hypervisor.h"

struct hypervisor_call {
    hypervisor_done *done;
    void *userdata;
    enum hypervisor_kind kind;
    struct hypervisor_request request;
};

static struct hypervisor_call *fake_vmm; /* the last that was called and has not been freed */
static int fake_vmm_refused;             /* -errno: no call can be made */

int hypervisor_call_new(struct loop *loop, enum hypervisor_kind kind,
                        const struct hypervisor_request *request, hypervisor_done *done,
                        void *userdata, struct hypervisor_call **ret_call, struct error *error)
{
    if (fake_vmm_refused)
        return fake_vmm_refused;
    *ret_call = fake_vmm = fake_call_make(sizeof(**ret_call));
    *fake_vmm = (struct hypervisor_call){done, userdata, kind, *request};
    return 0;
}

void hypervisor_call_go(struct hypervisor_call *call)
{
    call->request.is_ahead = false;
}

FAKE_CALL_FREE(hypervisor_call, hypervisor_call_free, fake_vmm)

static inline void vmm_answers(const struct hypervisor_reply *reply)
{
    assert_non_null(fake_vmm);
    assert_false(fake_vmm->request.is_ahead);
    fake_vmm->done(fake_vmm, reply, fake_vmm->userdata);
    assert_null(fake_vmm);
}
