/* SPDX-License-Identifier: Apache-2.0 */
/* drive_commands.c - the calls of drives.h, none of which is implemented yet. */
#include "reconciler/command/drives.h"

static enum status_code refuse(struct error *error)
{
    return (enum status_code)error_set(error, STATUS_UNIMPLEMENTED,
                                       "this crustd does not mount drives");
}

enum status_code reconciler_attach_drive(struct reconciler *reconciler,
                                         const struct reconciler_drive_attach *attach,
                                         reconciler_drive_done *done, void *userdata,
                                         struct drive_wait **ret_wait, struct error *error)
{
    (void)reconciler;
    (void)attach;
    (void)done;
    (void)userdata;
    (void)ret_wait;
    return refuse(error);
}

enum status_code reconciler_detach_drive(struct reconciler *reconciler, const char *drive_id,
                                         reconciler_drive_done *done, void *userdata,
                                         struct drive_wait **ret_wait, struct error *error)
{
    (void)reconciler;
    (void)drive_id;
    (void)done;
    (void)userdata;
    (void)ret_wait;
    return refuse(error);
}

enum status_code reconciler_limit_drive(struct reconciler *reconciler, const char *drive_id,
                                        const struct drive_limits *limits,
                                        reconciler_drive_done *done, void *userdata,
                                        struct drive_wait **ret_wait, struct error *error)
{
    (void)limits;
    return reconciler_detach_drive(reconciler, drive_id, done, userdata, ret_wait, error);
}

struct drive_wait *reconciler_drive_cancel(struct drive_wait *wait)
{
    (void)wait;
    return NULL;
}

enum status_code reconciler_get_drive(struct reconciler *reconciler, const char *drive_id,
                                      reconciler_drive_callback *callback, void *userdata,
                                      struct error *error)
{
    (void)reconciler;
    (void)drive_id;
    (void)callback;
    (void)userdata;
    return refuse(error);
}

enum status_code reconciler_each_drive(struct reconciler *reconciler, const char *sandbox_id,
                                       reconciler_drive_callback *callback, void *userdata,
                                       struct error *error)
{
    return reconciler_get_drive(reconciler, sandbox_id, callback, userdata, error);
}
