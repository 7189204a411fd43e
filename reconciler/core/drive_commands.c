/* SPDX-License-Identifier: Apache-2.0 */
/* drive_commands.c - hands the calls of drives.h to the module that answers them. */
#include "reconciler/command/drives.h"

#include "reconciler/core/internal.h"
#include "reconciler/drive/drives.h"

enum status_code reconciler_attach_drive(struct reconciler *reconciler,
                                         const struct reconciler_drive_attach *attach,
                                         reconciler_drive_done *done, void *userdata,
                                         struct drive_wait **ret_wait, struct error *error)
{
    return drives_attach(reconciler->drives, attach, done, userdata, ret_wait, error);
}

enum status_code reconciler_detach_drive(struct reconciler *reconciler, const char *drive_id,
                                         reconciler_drive_done *done, void *userdata,
                                         struct drive_wait **ret_wait, struct error *error)
{
    return drives_detach(reconciler->drives, drive_id, done, userdata, ret_wait, error);
}

enum status_code reconciler_limit_drive(struct reconciler *reconciler, const char *drive_id,
                                        const struct drive_limits *limits,
                                        reconciler_drive_done *done, void *userdata,
                                        struct drive_wait **ret_wait, struct error *error)
{
    return drives_limit(reconciler->drives, drive_id, limits, done, userdata, ret_wait, error);
}

enum status_code reconciler_get_drive(struct reconciler *reconciler, const char *drive_id,
                                      reconciler_drive_callback *callback, void *userdata,
                                      struct error *error)
{
    return drives_get(reconciler->drives, drive_id, callback, userdata, error);
}

enum status_code reconciler_each_drive(struct reconciler *reconciler, const char *sandbox_id,
                                       reconciler_drive_callback *callback, void *userdata,
                                       struct error *error)
{
    return drives_each(reconciler->drives, sandbox_id, callback, userdata, error);
}
