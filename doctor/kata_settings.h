/* SPDX-License-Identifier: Apache-2.0 */
/* kata_settings.h - the few keys of Kata's configuration.toml that decide whether volumes of its
 * sandboxes can be resized; text in, no I/O. Private to doctor/.
 *
 * Kata 4.1.0 reads the file and then every file of config.d beside it, in the order of their names;
 * what comes later wins (src/runtime/pkg/katautils/config.go decodeDropIns(), src/libs/kata-types/
 * src/config/drop_in.rs). Annotations of a pod may change it again; they are not seen here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/result.h"

enum { KATA_TABLES = 8, KATA_WORD_BYTES = 32, KATA_FILE_BYTES = 256, KATA_PATHS = 8 };

/* [hypervisor.NAME] */
struct kata_table {
    char name[KATA_WORD_BYTES];
    bool enable_debug;
    char debug_file[KATA_FILE_BYTES]; /* that said so last; "" none did */
    char monitor[KATA_WORD_BYTES];    /* extra_monitor_socket: "", hmp, qmp, qmp-pretty, … */
    char monitor_file[KATA_FILE_BYTES];
    bool no_block_devices;      /* disable_block_device_use */
    bool confidential;          /* confidential_guest */
    bool enforces_labels;       /* disable_guest_selinux = false: SELinux in the guest */
    char path[KATA_FILE_BYTES]; /* "": the runtime's own default */
    char path_file[KATA_FILE_BYTES];
    unsigned valid_paths; /* valid_hypervisor_paths; those beyond KATA_PATHS are passed over */
    char valid_path[KATA_PATHS][KATA_FILE_BYTES];
};

struct kata_settings {
    /* [runtime] has name or hypervisor_name: keys that the Rust runtime has, and Go's has not. */
    bool is_rust;
    char hypervisor[KATA_WORD_BYTES]; /* runtime.hypervisor_name, of the Rust runtime; "" */
    unsigned tables;
    struct kata_table table[KATA_TABLES];
};

/* Adds what one more file says to *settings, which starts as zeroes. 0, or -EBADMSG with
 * "FILE: line N: what"; what stands before that line has been added. */
int kata_settings_read(struct kata_settings *settings, const char *file, const char *text,
                       size_t length, struct error *error);

/* The table in use: the Rust runtime's by name, Go's only one. NULL if that can't be told. */
const struct kata_table *kata_settings_table(const struct kata_settings *settings);
