/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - every key of crustd.conf, as data.
 *
 * The order is the order in which the effective configuration is printed. Adding a key is adding a
 * row here, a member in config.h and a paragraph in crustd.conf.example; a test holds the three
 * together. Choices stand at the index of their enum value.
 */
#include "config/keys.h"

#include <string.h>

#include "lib/cleanup.h"

enum { DAY_SECONDS = 24 * 3600, YEAR_HOURS = 365 * 24 };

#define VSOCK_PORT_MAX (UINT32_MAX - 1) /* the last one is VMADDR_PORT_ANY */

static const char *const resize_modes[] = {"never", "observe", "grow", NULL};
static const char *const file_backed_modes[] = {"never", "observe", NULL};
static const char *const qemu_monitors[] = {"off", "extra", "main", NULL};
static const char *const routes[] = {"companion", "agent", "shim", "helper", NULL};
static const char *const cleanup_modes[] = {"off", "report", "delete", NULL};
static const char *const stage_layouts[] = {"kata", "crust", "both", NULL};

/* CRUST's names for the capabilities, except those that nothing here implements. */
static const char *const capabilities[] = {"auto",
                                           "FS_GROUP_CHANGE_POLICY_ALWAYS",
                                           "FS_GROUP_CHANGE_POLICY_ROOT_MISMATCH",
                                           "SUBPATH",
                                           "SELINUX_RELABEL",
                                           "SELINUX_RELABEL_ON_MOUNT",
                                           "VOLUME_STATS",
                                           "VOLUME_RESIZE",
                                           NULL};

#define KEY(key_section, key_member, key_kind, key_default, ...)                                   \
    {                                                                                              \
        .section = #key_section, .name = #key_member, .type = (key_kind),                          \
        .offset = offsetof(struct config, key_section.key_member), .default_value = (key_default), \
        __VA_ARGS__                                                                                \
    }

/* A path or socket is opened once, when the daemon starts. */
#define PATH(member, value) KEY(paths, member, KEY_PATH, value, .restart = true)
#define PATHS(member, value, at_least)                                                             \
    KEY(paths, member, KEY_PATHS, value, .restart = true, .minimum = (at_least))
#define NUMBER(section, member, value, from, to)                                                   \
    KEY(section, member, KEY_NUMBER, value, .minimum = (from), .maximum = (to))
#define CHOICE(section, member, value, names)                                                      \
    KEY(section, member, KEY_CHOICE, value, .choices = (names))

/* clang-format off */
const struct config_key config_keys[] = {
    PATH(kata_volumes, "/run/kata-containers/shared/direct-volumes"),
    PATH(crust_volumes, "/run/crust"),
    PATH(kata_go_sandboxes, "/run/vc/sbs"),
    PATH(kata_go_vms, "/run/vc/vm"),
    PATH(kata_rs_sandboxes, "/run/kata"),
    PATHS(bundles, "", 0),
    PATHS(kubelet, "/var/lib/kubelet", 1),
    PATH(sysfs, "/sys"),
    PATH(database, "/var/lib/crustd/crustd.db"),
    PATH(grpc_socket, "/run/crustd/crust.sock"),
    PATH(http_socket, "/run/crustd/http.sock"),
    KEY(paths, socket_group, KEY_GROUP, "", .restart = true),
    PATH(kata_trash, "/run/kata-containers/shared/.crust-trash"),
    PATH(crust_trash, "/run/.crust-trash"),

    KEY(http, listen, KEY_LISTEN, "", .restart = true),
    KEY(http, hosts, KEY_WORDS, "", .restart = true),

    KEY(metrics, listen, KEY_LISTEN, "", .restart = true),
    KEY(metrics, per_volume, KEY_SWITCH, "off"),

    CHOICE(resize, mode, "grow", resize_modes),
    CHOICE(resize, block_claims, "grow", resize_modes),
    KEY(resize, grow_annotation, KEY_WORDS, "crustd.dev/grow-file-system", .maximum = 1),
    KEY(resize, file_backed, KEY_CHOICE, "observe", .choices = file_backed_modes,
        .refused = "grow", .refusal = "is refused: QEMU would truncate the file"),
    CHOICE(resize, qemu_monitor, "extra", qemu_monitors),
    KEY(resize, firecracker, KEY_SWITCH, "off"),
    KEY(resize, scsi_rescan, KEY_SWITCH, "off"),
    NUMBER(resize, settle_ms, "0", 0, 60 * 1000),
    NUMBER(resize, parallel, "64", 1, 1024),
    NUMBER(resize, sweep_seconds, "30", 1, 3600),
    NUMBER(resize, call_timeout_seconds, "30", 1, 600),

    NUMBER(agent, port, "1024", 1, VSOCK_PORT_MAX),
    NUMBER(agent, companion_port, "1030", 1, VSOCK_PORT_MAX),
    KEY(agent, routes, KEY_ROUTES, "companion, agent, shim, helper", .choices = routes),

    NUMBER(guest, stats_seconds, "300", 0, DAY_SECONDS),
    KEY(guest, helper, KEY_SWITCH, "on"),
    NUMBER(guest, helpers, "2", 1, 16),
    KEY(guest, helper_file, KEY_PATH, CONFIG_HELPER_FILE),

    CHOICE(cleanup, mode, "delete", cleanup_modes),
    NUMBER(cleanup, grace_seconds, "60", 0, 7 * DAY_SECONDS),
    NUMBER(cleanup, unbound_grace_seconds, "600", 0, 7 * DAY_SECONDS),
    NUMBER(cleanup, max_per_minute, "10", 1, 6000),
    NUMBER(cleanup, keep_hours, "24", 0, YEAR_HOURS),

    CHOICE(crust, stage_layout, "kata", stage_layouts),
    KEY(crust, runtime_cli_allow, KEY_PATHS,
        "/usr/bin/kata-runtime, /opt/kata/bin/kata-runtime, /usr/bin/crustctl"),
    KEY(crust, capabilities, KEY_WORDS, "auto", .choices = capabilities),
    KEY(crust, file_systems, KEY_WORDS, "auto"),

    KEY(drives, enabled, KEY_SWITCH, "off"),
    KEY(drives, host_prefixes, KEY_PATHS, ""),
    NUMBER(drives, flush_seconds, "5", 1, 3600),

    NUMBER(history, keep_days, "90", 1, 3650),
    NUMBER(history, max_rows, "1000000", 1000, 100 * 1000 * 1000),

    KEY(log, journal, KEY_SWITCH, "off"),

    KEY(kubernetes, events, KEY_SWITCH, "off"),
    KEY(kubernetes, service_account, KEY_PATH, "/var/run/secrets/kubernetes.io/serviceaccount"),
};
/* clang-format on */

const size_t config_key_count = array_length(config_keys);

_Static_assert(array_length(config_keys) <= CONFIG_KEYS_MAX, "config.c remembers a line per key");

const char *config_resize_mode_name(enum config_resize_mode mode)
{
    return resize_modes[mode];
}

const char *config_cleanup_mode_name(enum config_cleanup_mode mode)
{
    return cleanup_modes[mode];
}

int config_key_find(const char *section, const char *name)
{
    for (size_t i = 0; i < config_key_count; i++)
        if (strcmp(config_keys[i].section, section) == 0 &&
            (!name || strcmp(config_keys[i].name, name) == 0))
            return (int)i;
    return -1;
}
