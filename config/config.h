/* SPDX-License-Identifier: Apache-2.0 */
/* config.h - every setting of crustd, read from an INI file.
 *
 * config/keys.c holds the one table of keys: section.key, type, default, range. config_load() reads
 * each file all or nothing; an error names file, line and key. Paths are kept as written; their
 * users resolve them below --root (only the file's own path is taken as given).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/result.h"
#include "model/sandbox.h"

#define CONFIG_DEFAULT_FILE "/etc/crustd/crustd.conf"

/* The environment variables that replace --root and --config: with them crustd and crustctl in a
 * container's image find the node, and each other, without arguments. */
#define CONFIG_ROOT_VARIABLE "CRUST_ROOT"
#define CONFIG_FILE_VARIABLE "CRUST_CONFIG"

/* The default of guest.helper_file. */
#define CONFIG_HELPER_FILE "/usr/libexec/crustd/crust-guest-agent"

enum {
    CONFIG_PATH_BYTES = 256,
    CONFIG_LIST_ITEMS = 16,
    CONFIG_LINE_BYTES = 1024,
    CONFIG_WORD_BYTES = 254 /* a DNS name has 253 at most */
};

enum config_resize_mode { RESIZE_NEVER, RESIZE_OBSERVE, RESIZE_GROW };
enum config_file_backed { FILE_BACKED_NEVER, FILE_BACKED_OBSERVE };
enum config_qemu_monitor { QEMU_MONITOR_OFF, QEMU_MONITOR_EXTRA, QEMU_MONITOR_MAIN };
enum config_cleanup_mode { CLEANUP_OFF, CLEANUP_REPORT, CLEANUP_DELETE };
enum config_stage_layout { STAGE_KATA, STAGE_CRUST, STAGE_BOTH };

/* Absolute paths, or words; none twice. They come from one line of the file, so that whatever it
 * may hold fits. */
struct config_list {
    unsigned count;
    char text[CONFIG_LINE_BYTES]; /* one after the other, each with its NUL */
};

struct config {
    struct {
        char kata_volumes[CONFIG_PATH_BYTES];
        char crust_volumes[CONFIG_PATH_BYTES];
        char kata_go_sandboxes[CONFIG_PATH_BYTES];
        char kata_go_vms[CONFIG_PATH_BYTES];
        char kata_rs_sandboxes[CONFIG_PATH_BYTES];
        struct config_list bundles;
        struct config_list kubelet;
        char sysfs[CONFIG_PATH_BYTES];
        char database[CONFIG_PATH_BYTES];
        char grpc_socket[CONFIG_PATH_BYTES];
        char http_socket[CONFIG_PATH_BYTES];
        char socket_group[64]; /* empty: root only */
        char kata_trash[CONFIG_PATH_BYTES];
        char crust_trash[CONFIG_PATH_BYTES];
    } paths;
    struct {
        char listen[64];          /* ADDRESS:PORT, empty: off */
        struct config_list hosts; /* names by which a browser may ask there */
    } http;
    struct {
        char listen[64]; /* as above */
        bool per_volume;
    } metrics;
    struct {
        enum config_resize_mode mode, block_claims;
        struct config_list grow_annotation;
        enum config_file_backed file_backed;
        enum config_qemu_monitor qemu_monitor;
        bool firecracker;
        bool scsi_rescan;
        uint32_t settle_ms;
        uint32_t parallel;
        uint32_t sweep_seconds;
        uint32_t call_timeout_seconds;
    } resize;
    struct {
        uint32_t port;
        uint32_t companion_port;
        enum guest_route routes[GUEST_ROUTES]; /* ROUTE_NONE after the last */
    } agent;
    struct {
        uint32_t stats_seconds; /* 0: guests are not asked */
        bool helper;
        uint32_t helpers;
        char helper_file[CONFIG_PATH_BYTES]; /* as crustd itself sees it, not below --root */
    } guest;
    struct {
        enum config_cleanup_mode mode;
        uint32_t grace_seconds;
        uint32_t unbound_grace_seconds;
        uint32_t max_per_minute;
        uint32_t keep_hours;
    } cleanup;
    struct {
        enum config_stage_layout stage_layout;
        struct config_list runtime_cli_allow;
        struct config_list capabilities; /* "auto": those that are found */
        struct config_list file_systems; /* as above */
    } crust;
    struct {
        bool enabled;
        struct config_list host_prefixes; /* of the disks that may be attached */
        uint32_t flush_seconds;
    } drives;
    struct {
        uint32_t keep_days;
        uint32_t max_rows;
    } history;
    struct {
        bool journal; /* on stdout */
    } log;
    struct {
        bool events;
        char service_account[CONFIG_PATH_BYTES]; /* as crustd itself sees it, not below --root */
    } kubernetes;
};

/* The item, borrowed; number < list->count. */
const char *config_list_item(const struct config_list *list, unsigned number);
/* false: it has CONFIG_LIST_ITEMS already, or no room. */
bool config_list_add(struct config_list *list, const char *item);

void config_defaults(struct config *ret_config);

/* The word that the file has for the mode. */
const char *config_resize_mode_name(enum config_resize_mode mode);
const char *config_cleanup_mode_name(enum config_cleanup_mode mode);

/* By CRUST_ROOT and CRUST_CONFIG; "/" and NULL where these are not set, or empty. Borrowed. */
const char *config_root_of_environment(void);
const char *config_file_of_environment(void);

/* Whether crustd brings a helper into guests without an agent that can grow file systems. */
bool config_brings_helpers(const struct config *config);

/* The configuration of a program on this host: defaults, then the file over them, then those of
 * FILE.d whose names end with .conf, sorted by name; the last one that gives a key wins. The file
 * is the given one, path as it stands, or else the default one inside the root, which may be
 * absent; root_name names the root in errors. -ENOENT only if the given file is absent; -EINVAL
 * with "FILE:LINE: section.key: what is wrong" otherwise. On failure ret_config has what the files
 * without a fault say, which is enough to find the daemon. */
int config_load(int root, const char *root_name, const char *given, struct config *ret_config,
                struct error *error);

/* From a stream already open, over what the configuration says already, which stays if that fails;
 * `name` stands for the file in errors. */
int config_read(FILE *stream, const char *name, struct config *config, struct error *error);

/* The effective configuration in the file's own form, every key in table order. */
int config_print(const struct config *config, FILE *stream);

/* Keys whose value differs and that only a restart applies (paths and sockets), as "a, b"; empty if
 * none. HUP logs them. */
void config_needs_restart(const struct config *old_config, const struct config *new_config,
                          char *ret_text, size_t size);
