/* SPDX-License-Identifier: Apache-2.0 */
/* unasked_commands.h - the calls of command.h that a test of an API never makes, and those whose
 * answer is always the same. */
#pragma once

#include "tests/unit/test.h"

#include "reconciler/command/command.h"
#include "tests/unit/drive_commands.h"

enum status_code reconciler_stage(struct reconciler *reconciler,
                                  const struct reconciler_stage *stage, reconciler_staged *done,
                                  void *userdata, struct staging **ret_staging, struct error *error)
{
    fail();
    return STATUS_UNAVAILABLE;
}

enum status_code reconciler_unstage(struct reconciler *reconciler, const char *target_path,
                                    reconciler_staged *done, void *userdata,
                                    struct staging **ret_staging, struct error *error)
{
    return reconciler_stage(reconciler, NULL, done, userdata, ret_staging, error);
}

struct staging *reconciler_stage_cancel(struct staging *staging)
{
    fail();
    return NULL;
}

int reconciler_find_file_systems(struct reconciler *reconciler, struct reconciler_names *ret_names)
{
    fail();
    return -1;
}

int reconciler_find_capabilities(struct reconciler *reconciler, struct reconciler_names *ret_names,
                                 struct error *error)
{
    return reconciler_find_file_systems(reconciler, ret_names);
}

enum status_code reconciler_ask_stats(struct reconciler *reconciler,
                                      const struct reconciler_target *target,
                                      reconciler_stats_done *done, void *userdata,
                                      struct stats_call **ret_call, struct error *error)
{
    return error_set(error, STATUS_UNAVAILABLE, "no sandbox uses the volume yet");
}

struct stats_call *reconciler_stats_cancel(struct stats_call *call)
{
    return NULL;
}
