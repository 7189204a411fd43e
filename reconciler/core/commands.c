/* SPDX-License-Identifier: Apache-2.0 */
/* commands.c - hands the calls of command.h to the modules that answer them, and provides what
 * those modules need of the core. */
#include "reconciler/command/clients.h"
#include "reconciler/core/internal.h"

/* ---- what the calls need ---- */

static bool is_full(void *userdata)
{
    return scan_is_over_limit(&((const struct reconciler *)userdata)->scan);
}

static int observe_entry_now(void *userdata, enum volume_layout layout, const char *name)
{
    const struct reconciler *reconciler = userdata;

    return observer_observe_entry(&reconciler->observer, tree_of_layout(layout), name);
}

static int resolve_path(void *userdata, const char *target_path)
{
    return unresolved_offer_asked(&((const struct reconciler *)userdata)->context, target_path);
}

static const char *find_host_use(void *userdata, uint32_t major, uint32_t minor)
{
    return devices_host_use_for_client(&((struct reconciler *)userdata)->devices, major, minor);
}

static enum status_code attach_drive(void *userdata, const struct reconciler_drive_attach *attach,
                                     reconciler_drive_done *done, void *done_userdata,
                                     struct drive_wait **ret_wait, struct error *error)
{
    return reconciler_attach_drive(userdata, attach, done, done_userdata, ret_wait, error);
}

static enum status_code detach_drive(void *userdata, const char *drive_id,
                                     reconciler_drive_done *done, void *done_userdata,
                                     struct drive_wait **ret_wait, struct error *error)
{
    return reconciler_detach_drive(userdata, drive_id, done, done_userdata, ret_wait, error);
}

static enum status_code get_drive(void *userdata, const char *drive_id,
                                  reconciler_drive_callback *callback, void *callback_userdata,
                                  struct error *error)
{
    return reconciler_get_drive(userdata, drive_id, callback, callback_userdata, error);
}

const struct clients_core core_for_clients = {
    .is_full = is_full,
    .observe_entry = observe_entry_now,
    .resolve_path = resolve_path,
    .find_host_use = find_host_use,
    .attach_drive = attach_drive,
    .detach_drive = detach_drive,
    .get_drive = get_drive,
    .cancel_drive = reconciler_drive_cancel,
};

/* ---- the calls ---- */

enum status_code reconciler_expand(struct reconciler *reconciler,
                                   const struct reconciler_expand *asked, reconciler_expanded *done,
                                   void *userdata, struct expansion **ret_expansion,
                                   struct error *error)
{
    return expand_begin(reconciler->clients, asked, done, userdata, ret_expansion, error);
}

enum status_code reconciler_stage(struct reconciler *reconciler,
                                  const struct reconciler_stage *stage, reconciler_staged *done,
                                  void *userdata, struct staging **ret_staging, struct error *error)
{
    return stage_begin(reconciler->clients, stage, done, userdata, ret_staging, error);
}

enum status_code reconciler_unstage(struct reconciler *reconciler, const char *target_path,
                                    reconciler_staged *done, void *userdata,
                                    struct staging **ret_staging, struct error *error)
{
    return unstage_begin(reconciler->clients, target_path, done, userdata, ret_staging, error);
}

enum status_code reconciler_ask_stats(struct reconciler *reconciler,
                                      const struct reconciler_target *target,
                                      reconciler_stats_done *done, void *userdata,
                                      struct stats_call **ret_call, struct error *error)
{
    return stats_begin(reconciler->clients, target, done, userdata, ret_call, error);
}

int reconciler_examine(struct reconciler *reconciler, struct buffer *ret_json, struct error *error)
{
    return examine_node(&reconciler->context, ret_json, error);
}

const struct reconciler_findings *reconciler_get_findings(const struct reconciler *reconciler)
{
    return &reconciler->examination.findings;
}

int reconciler_find_capabilities(struct reconciler *reconciler, struct reconciler_names *ret_names,
                                 struct error *error)
{
    return find_capabilities(&reconciler->context, ret_names, error);
}

int reconciler_find_file_systems(struct reconciler *reconciler, struct reconciler_names *ret_names)
{
    return find_file_systems(&reconciler->context, ret_names);
}

enum status_code reconciler_gc(struct reconciler *reconciler, bool dry_run, int64_t volume_id,
                               struct buffer *ret_json, struct error *error)
{
    return cleanup_gc(&reconciler->cleanup, dry_run, volume_id, ret_json, error);
}

enum status_code reconciler_restore(struct reconciler *reconciler, int64_t cleanup_id,
                                    struct error *error)
{
    return cleanup_restore(&reconciler->cleanup, cleanup_id, error);
}

void reconciler_get_modes(const struct reconciler *reconciler, struct reconciler_modes *ret_modes)
{
    *ret_modes = (struct reconciler_modes){
        .resize = config_resize_mode_name(reconciler->config.resize.mode),
        .cleanup = config_cleanup_mode_name(reconciler->config.cleanup.mode),
        .per_volume = reconciler->config.metrics.per_volume,
    };
}
