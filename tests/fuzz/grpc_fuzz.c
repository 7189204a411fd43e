/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_fuzz.c - what a client of the gRPC socket may send, whatever it is.
 *
 * The first byte says in what pieces the rest comes, and whether HTTP/2's preface and SETTINGS
 * stand before it. Beyond memory safety: each request is answered once, and when the session ends
 * the room that bodies took is free again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/grpc_call.h"
#include "reconciler/command/command.h"
#include "reconciler/command/drive_form.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct call_method *const services[] = {
    crust_runtime_methods, crust_management_methods, crust_drives_methods, health_methods, NULL};

static void must(int condition)
{
    if (!condition)
        abort();
}

void reconciler_get_health(const struct reconciler *reconciler,
                           struct reconciler_health *ret_health)
{
    (void)reconciler;
    *ret_health = (struct reconciler_health){.synced = true};
}

/* Every text must be one, and have its end. */
static enum status_code measure(const char *text, struct error *error)
{
    return error_set(error, strlen(text) ? STATUS_OK : STATUS_INVALID_ARGUMENT, "%s", text);
}

enum status_code reconciler_stage(struct reconciler *reconciler,
                                  const struct reconciler_stage *stage, reconciler_staged *done,
                                  void *userdata, struct staging **ret_staging, struct error *error)
{
    (void)reconciler;
    (void)done;
    (void)userdata;
    (void)ret_staging;
    for (unsigned i = 0; i < stage->options; i++)
        (void)measure(stage->option[i], error);
    (void)measure(stage->device, error);
    (void)measure(stage->fs_type, error);
    (void)measure(stage->group ? stage->group : "", error);
    (void)measure(stage->target_path, error);
    return STATUS_UNAVAILABLE;
}

enum status_code reconciler_unstage(struct reconciler *reconciler, const char *target_path,
                                    reconciler_staged *done, void *userdata,
                                    struct staging **ret_staging, struct error *error)
{
    (void)reconciler;
    (void)done;
    (void)userdata;
    (void)ret_staging;
    (void)measure(target_path, error);
    return STATUS_UNAVAILABLE;
}

struct staging *reconciler_stage_cancel(struct staging *staging)
{
    return staging;
}

static void measure_target(const struct reconciler_target *target, struct error *error)
{
    if (target->target_path) {
        (void)measure(target->target_path, error);
        return;
    }
    (void)measure(target->sandbox_id, error);
    (void)measure(target->device, error);
}

enum status_code reconciler_expand(struct reconciler *reconciler,
                                   const struct reconciler_expand *asked, reconciler_expanded *done,
                                   void *userdata, struct expansion **ret_expansion,
                                   struct error *error)
{
    (void)reconciler;
    (void)done;
    (void)userdata;
    (void)ret_expansion;
    measure_target(&asked->target, error);
    return STATUS_UNAVAILABLE;
}

struct expansion *reconciler_expand_cancel(struct expansion *expansion)
{
    return expansion;
}

enum status_code reconciler_ask_stats(struct reconciler *reconciler,
                                      const struct reconciler_target *target,
                                      reconciler_stats_done *done, void *userdata,
                                      struct stats_call **ret_call, struct error *error)
{
    (void)reconciler;
    (void)done;
    (void)userdata;
    (void)ret_call;
    measure_target(target, error);
    return STATUS_UNAVAILABLE;
}

struct stats_call *reconciler_stats_cancel(struct stats_call *call)
{
    return call;
}

int reconciler_find_capabilities(struct reconciler *reconciler, struct reconciler_names *ret_names,
                                 struct error *error)
{
    (void)reconciler;
    (void)error;
    *ret_names = (struct reconciler_names){2, {"VOLUME_STATS", "VOLUME_RESIZE"}};
    return 0;
}

int reconciler_find_file_systems(struct reconciler *reconciler, struct reconciler_names *ret_names)
{
    (void)reconciler;
    *ret_names = (struct reconciler_names){1, {"ext4"}};
    return 0;
}

enum status_code reconciler_attach_drive(struct reconciler *reconciler,
                                         const struct reconciler_drive_attach *attach,
                                         reconciler_drive_done *done, void *userdata,
                                         struct drive_wait **ret_wait, struct error *error)
{
    (void)reconciler;
    (void)done;
    (void)userdata;
    (void)ret_wait;
    for (unsigned i = 0; i < attach->options; i++)
        (void)measure(attach->option[i], error);
    for (unsigned i = 0; i < attach->containers; i++) {
        (void)measure(attach->container[i].container_id, error);
        (void)measure(attach->container[i].path, error);
        (void)measure(attach->container[i].sub_path, error);
    }
    (void)measure(attach->sandbox_id, error);
    (void)measure(attach->host_path, error);
    (void)measure(attach->vm_path, error);
    (void)measure(attach->fs_type, error);
    (void)measure(attach->drive_id, error);
    return STATUS_FAILED_PRECONDITION;
}

enum status_code reconciler_detach_drive(struct reconciler *reconciler, const char *drive_id,
                                         reconciler_drive_done *done, void *userdata,
                                         struct drive_wait **ret_wait, struct error *error)
{
    (void)reconciler;
    (void)done;
    (void)userdata;
    (void)ret_wait;
    (void)measure(drive_id, error);
    return STATUS_FAILED_PRECONDITION;
}

enum status_code reconciler_limit_drive(struct reconciler *reconciler, const char *drive_id,
                                        const struct drive_limits *limits,
                                        reconciler_drive_done *done, void *userdata,
                                        struct drive_wait **ret_wait, struct error *error)
{
    must(limits->bandwidth.size <= INT64_MAX && limits->operations.size <= INT64_MAX);
    return reconciler_detach_drive(reconciler, drive_id, done, userdata, ret_wait, error);
}

struct drive_wait *reconciler_drive_cancel(struct drive_wait *wait)
{
    return wait;
}

/* Enough of them that a list needs room. */
enum status_code reconciler_each_drive(struct reconciler *reconciler, const char *sandbox_id,
                                       reconciler_drive_callback *callback, void *userdata,
                                       struct error *error)
{
    const struct reconciler_drive drive = {.drive_id = "d",
                                           .sandbox_id = sandbox_id ? sandbox_id : "s",
                                           .host_path = "/dev/vg/data",
                                           .vm_path = "/mnt/data",
                                           .fs_type = "ext4",
                                           .options = "[\"noatime\"]",
                                           .serial = "crust-abcdefghijklmn",
                                           .guest_device = "sdb",
                                           .state = DRIVE_READY,
                                           .message = ""};

    (void)reconciler;
    (void)error;
    for (unsigned i = 0; i < 64; i++)
        must(callback(userdata, &drive) == 0);
    return STATUS_OK;
}

enum status_code reconciler_get_drive(struct reconciler *reconciler, const char *drive_id,
                                      reconciler_drive_callback *callback, void *userdata,
                                      struct error *error)
{
    (void)reconciler;
    (void)callback;
    (void)userdata;
    (void)measure(drive_id, error);
    return STATUS_NOT_FOUND;
}

static void on_request(struct http2_request *request, void *userdata)
{
    const struct grpc_call_options *options = userdata;

    must(!request->replied);
    grpc_call_begin(options, request, NULL);
    must(request->replied);
}

static void on_cancelled(struct http2_request *request, void *userdata)
{
    (void)request;
    (void)userdata;
    abort(); /* nothing here is answered later */
}

static void drain(struct http2_session *session)
{
    const void *bytes;

    while (http2_session_send(session, &bytes) > 0)
        ;
}

static void feed(struct http2_session *session, const uint8_t *data, size_t size, size_t piece)
{
    while (size > 0 && !http2_session_is_over(session)) {
        size_t length = piece && piece < size ? piece : size;

        (void)http2_session_receive(session, data, length);
        drain(session);
        data += length;
        size -= length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    static const struct http2_handler handler = {on_request, on_cancelled};
    struct operations operations = {0};
    struct grpc_call_options options = {.surroundings.operations = &operations,
                                        .services = services};
    struct http2_room room = {.limit = 128 * 1024};
    struct http2_session *session;

    if (size == 0 || http2_session_new(&handler, &options, &room, &session) < 0)
        return 0;
    if (data[0] & 0x80)
        feed(session, (const uint8_t *)preface, sizeof(preface) - 1, 0);
    feed(session, data + 1, size - 1, data[0] & 0x7f);
    http2_session_free(session);
    operations_done(&operations);
    must(room.used == 0);
    return 0;
}
