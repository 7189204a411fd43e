/* SPDX-License-Identifier: Apache-2.0 */
/* checks.h - the parts of an examination. Private to doctor/. */
#pragma once

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "config/config.h"
#include "lib/buffer.h"
#include "lib/clock.h"
#include "lib/directory.h"
#include "lib/result.h"

enum finding_level {
    FINDING_OK,
    FINDING_NOTE,    /* good to know; nothing has to be done */
    FINDING_WARNING, /* something is slower, coarser or less safe than it could be */
    FINDING_ERROR,   /* some volume cannot grow, no drive be attached, or crustd not start */
};

/* One examination: what it is given, its findings as JSON, and what it noticed that works. */
struct findings {
    int root;                          /* O_PATH of --root */
    const struct config *config;       /* borrowed, like the other pointers */
    const cJSON *sandboxes;            /* as store_read_abilities() reads them, or NULL */
    char boot_id[CLOCK_BOOT_ID_BYTES]; /* sandboxes of another boot have ended */
    struct buffer *json;
    unsigned count;

    unsigned configurations; /* of Kata's, those that give a guest its volumes */
    unsigned label_guests;   /* of these, those whose guests enforce SELinux */
    unsigned running;        /* sandboxes */
    bool tells_hypervisor, resizes_guests;
    bool ignores_group;        /* some runtime is not Kata's in Go, which alone applies fsGroup */
    bool lacks_direct_volumes; /* Kata is too old */
};

/* where, remedy: NULL none. Texts are whole sentences without a full stop at their end. */
void findings_add(struct findings *findings, enum finding_level level, const char *id,
                  const char *where, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* That something is well, or what is wrong with it. */
void findings_check(struct findings *findings, bool is_well, const char *well,
                    enum finding_level level, const char *id, const char *where, const char *remedy,
                    const char *format, ...) __attribute__((format(printf, 8, 9)));

/* Whether a row is about a sandbox of this boot. */
bool findings_is_running(const struct findings *findings, const cJSON *sandbox);

/* ---- the node ------------------------------------------------------------------------------- */

/* What the kernel lets this process do, and as whom it runs. Each feature is tried, because a
 * system-call filter or a namespace can take away what the version promises. Results of system
 * calls are 0 or -errno. */
struct kernel_facts {
    char release[65]; /* uname(2) */
    int openat2, pidfd_open;
    int vsock;           /* 0, or why there is no socket of AF_VSOCK as an errno */
    int uevents;         /* listening to the kernel's own group */
    bool large_buffer;   /* a receive buffer beyond net.core.rmem_max may be had */
    int64_t now_seconds; /* CLOCK_REALTIME */

    int inotify, watch;                  /* an instance, and a watch of it */
    uint64_t max_instances, max_watches; /* fs.inotify.max_user_…; 0: unknown */
    unsigned directories;                /* that crustd watches now */

    uid_t uid;
    bool may_trace;     /* CAP_SYS_PTRACE */
    int first_process;  /* inspecting process 1: its mounts and its root */
    bool user_is_first; /* lib/process.h */
    bool shows_all_processes;
};

void kernel_read(int root, const struct config *config, struct kernel_facts *ret_facts);
void kernel_judge(const struct kernel_facts *facts, struct findings *findings);

/* The directories that crustd's configuration names. */
void paths_examine(struct findings *findings);

/* Whether disks may be opened for drive mounts, where drives.enabled = on. */
void drives_examine(struct findings *findings);

/* device NULL: none was tried. access: 0, or the errno of opening it to read and write. */
void drives_judge_device(const char *device, int access, struct findings *findings);

/* A note for each CSI driver that has mounted volumes of Kata's pods on the node. table: the node's
 * mount table, open. */
void host_mounts_examine(int table, struct findings *findings);

/* The visible names of a directory, at most 64; none if it is absent. 0 or -errno. */
int host_names_read(int root, const char *directory, struct directory_names *ret_names);

/* Where an existing path really leads, as a path below root; as given where that can't be told. 0
 * or -errno. */
int host_file_resolve(int root, const char *path, char ret_path[static PATH_MAX]);

enum { HOST_FILE_BYTES = 256 * 1024 }; /* of a configuration file of others */

/* ---- programs ------------------------------------------------------------------------------- */

/* What Kata's `path` leads to: a hypervisor, crust-qemu, or nothing.
 *
 * Kata resolves the path, links included, when a sandbox starts; if it leads nowhere, none starts.
 * In a pod crustd sees only a part of the node's files, so what is not below root is searched for
 * in the root of the node's first process. */
enum program_state {
    PROGRAM_UNNAMED, /* no path is set */
    PROGRAM_THERE,
    PROGRAM_ABSENT,
    PROGRAM_NOT_EXECUTABLE,
    PROGRAM_UNSEEN, /* not below root, and the rest of the node cannot be seen */
};

struct program {
    enum program_state state;
    bool is_crust;       /* crust-qemu, by its name; the rest holds where it is that and THERE */
    char qemu_name[128]; /* what it runs */
    enum program_state qemu;
    bool has_directory;   /* /run/crustd/qemu is there, and root's alone */
    bool has_other_label; /* than QEMU, for SELinux */
};

/* path: "" none is set. */
void program_find(int root, const char *path, struct program *ret_program);

/* ---- configuration files -------------------------------------------------------------------- */

/* TOML 1.0 as far as configurations of Kata and of container engines go: tables, dotted and quoted
 * keys, inline tables, strings, booleans, arrays of strings. Any other value is skipped. What is no
 * TOML ends the reading with its line number; nothing is guessed. https://toml.io/en/v1.0.0 */
enum { TOML_PARTS = 12, TOML_NAME_BYTES = 256, TOML_TEXT_BYTES = 512 };

enum toml_kind {
    TOML_STRING,
    TOML_BOOLEAN,
    TOML_OTHER,   /* also a string over several lines, or of TOML_TEXT_BYTES and more */
    TOML_ELEMENT, /* a string in an array, whose own item, TOML_OTHER, comes before */
};

struct toml_item {
    unsigned parts; /* of the table's name and the key's: a.b.c is 3 */
    const char *part[TOML_PARTS];
    enum toml_kind kind;
    const char *text; /* of a string, "" else */
    bool truth;       /* of a boolean */
    const char *file; /* as given to toml_read() */
    unsigned line;
};

/* The item is borrowed for the call. A negative ends the reading and is what it returns. */
typedef int toml_callback(void *userdata, const struct toml_item *item, struct error *error);

/* 0, or -EBADMSG with "FILE: line N: what"; what came before has been called back then. */
int toml_read(const char *file, const char *text, size_t length, toml_callback *callback,
              void *userdata, struct error *error);

/* The few keys of Kata's configuration.toml that decide whether volumes of its sandboxes can be
 * resized. Annotations of a pod may change them again; they are not seen here. */
enum { KATA_TABLES = 8, KATA_WORD_BYTES = 32, KATA_FILE_BYTES = 256, KATA_PATHS = 8 };

/* [hypervisor.NAME]; a member …_file names the file that set the value last, "" none did. */
struct kata_table {
    char name[KATA_WORD_BYTES];
    bool enable_debug;
    char debug_file[KATA_FILE_BYTES];
    char monitor[KATA_WORD_BYTES]; /* extra_monitor_socket: "", hmp, qmp, qmp-pretty, … */
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

/* The runtimes that the container engine's configuration has, as kata-deploy of Kata 4.1.0 writes
 * them (tools/packaging/kata-deploy/binary/src/runtime/).
 *
 * containerd: [plugins.….containerd.runtimes.NAME] runtime_type, runtime_path, sandboxer; in its
 * options ConfigPath. CRI-O: [crio.runtime.runtimes.NAME] runtime_type, runtime_path,
 * runtime_config_path. */
enum { ENGINE_RUNTIMES = 64, ENGINE_NAME_BYTES = 64, ENGINE_PATH_BYTES = 256 };

struct engine_runtime {
    char name[ENGINE_NAME_BYTES];        /* a RuntimeClass's handler */
    bool is_kata;                        /* its type, path or configuration has "kata" in it */
    bool is_rust;                        /* its path has "runtime-rs" in it */
    bool is_sandboxer;                   /* sandboxer = "shim": it is asked for sandboxes */
    char config_path[ENGINE_PATH_BYTES]; /* "": the runtime looks where it was built to */
};

struct engine_runtimes {
    unsigned count;
    struct engine_runtime runtime[ENGINE_RUNTIMES];
};

/* As kata_settings_read(). */
int engine_runtimes_read(struct engine_runtimes *runtimes, const char *file, const char *text,
                         size_t length, struct error *error);

/* ---- Kata ----------------------------------------------------------------------------------- */

/* A configuration that this node uses. */
struct kata_configuration {
    char path[PATH_MAX]; /* links followed, for config.d stands beside the file itself */
    char runtimes[256];  /* who uses it, as people call them */
};

struct kata_in_use {
    unsigned count;
    struct kata_configuration configuration[32];
};

/* Those that the container engine's configuration names, else those that Kata's runtimes look for
 * by themselves. A file that could not be read becomes a finding. */
void kata_in_use_find(struct kata_in_use *ret_in_use, struct findings *findings);

/* Whether volumes of sandboxes with the configurations in use can be resized, and of which release
 * Kata is. */
void kata_examine(struct findings *findings);

/* The findings about one configuration, and about its paths. */
void kata_judge(const struct kata_settings *settings, const struct program *program,
                const char *file, const char *runtimes, struct findings *findings);
void kata_judge_programs(const struct kata_table *table, const struct program *program,
                         const char *runtimes, struct findings *findings);

/* text: of /opt/kata/VERSION. */
void kata_version_judge(const char *text, struct findings *findings);

/* Every file in the places of Kata's configurations, in use or not, and those that the container
 * engine names elsewhere, that need crust-qemu. */
void crust_users_find(struct findings *findings);

/* Where crust-qemu.toml lies, which serves both runtimes: share/crustd/kata below what this program
 * was installed to (/usr; in a container, the image's), else where crustd's source has it. */
enum { DROP_IN_BYTES = 512 };
void drop_in_find(char ret_path[static DROP_IN_BYTES]);

/* Which of the volumes in running sandboxes could be resized. */
void sandboxes_judge(struct findings *findings);

/* {sandbox id: which of its processes or records is not trusted, and why}. */
void sandboxes_judge_distrusted(const cJSON *distrusted, struct findings *findings);
