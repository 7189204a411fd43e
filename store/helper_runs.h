/* SPDX-License-Identifier: Apache-2.0 */
/* helper_runs.h - helpers that may be in guests. */
#pragma once

#include "model/hypervisor.h"
#include "model/runtime.h"
#include "store/bounds.h"

enum { STORE_HELPER_BYTES = 32 };

/* A helper that may be in a guest: its container and its directory have one name. */
struct store_helper_run {
    char name[STORE_HELPER_BYTES]; /* "" where a sandbox alone is meant */
    int64_t sandbox_ref;
    bool is_alive; /* the sandbox */
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    enum kata_runtime runtime;
    enum hypervisor_kind hypervisor;
    pid_t vmm_pid;         /* 0: not known */
    uint64_t vmm_start_ns; /* CLOCK_BOOTTIME */
    char control_socket[STORE_ADDRESS_BYTES];
    char agent_address[STORE_ADDRESS_BYTES];
};

/* Before anything of it is made; grows: it changes something, and is journaled. */
int store_put_helper_run(struct store *store, int64_t sandbox_ref, const char *name, bool grows);
/* Nothing of it is left. */
int store_forget_helper_run(struct store *store, const char *name);
/* What an earlier daemon had left of it was removed: a journal line alone. */
int store_note_helper_removed(struct store *store, int64_t sandbox_ref, const char *name);

/* Those that may be left, and all live sandboxes. The callback must not write; returning non-zero
 * ends the walk. */
typedef int store_helper_callback(void *userdata, const struct store_helper_run *run);
/* One sandbox, of whatever time; ret_run's sandbox_ref is 0 if it is not known any more. */
int store_get_helper_sandbox(struct store *store, int64_t sandbox_ref,
                             struct store_helper_run *ret_run);
int store_each_helper_run(struct store *store, store_helper_callback *callback, void *userdata);
int store_each_helper_sandbox(struct store *store, store_helper_callback *callback, void *userdata);
