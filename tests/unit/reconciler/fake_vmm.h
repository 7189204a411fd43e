/* SPDX-License-Identifier: Apache-2.0 */
/* fake_vmm.h - a VMM that answers when the test says so; in place of hypervisor/hypervisor.c. */
#pragma once

#include "tests/unit/test.h"

#include <stdlib.h>

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
                        void *userdata, struct hypervisor_call **ret_call)
{
    (void)loop;
    if (fake_vmm_refused)
        return fake_vmm_refused;
    *ret_call = fake_vmm = calloc(1, sizeof(**ret_call));
    assert_non_null(fake_vmm);
    *fake_vmm = (struct hypervisor_call){done, userdata, kind, *request};
    return 0;
}

struct hypervisor_call *hypervisor_call_free(struct hypervisor_call *call)
{
    if (call)
        fake_vmm = NULL;
    free(call);
    return NULL;
}

bool hypervisor_has_client(enum hypervisor_kind kind)
{
    return kind != HYPERVISOR_UNKNOWN;
}

static inline void vmm_answers(const struct hypervisor_reply *reply)
{
    assert_non_null(fake_vmm);
    fake_vmm->done(fake_vmm, reply, fake_vmm->userdata);
    assert_null(fake_vmm);
}
