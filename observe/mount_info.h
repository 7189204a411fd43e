/* SPDX-License-Identifier: Apache-2.0 */
/* mount_info.h - mountInfo.json, text in, facts out; no I/O.
 *
 * Fields as Kata reads them (src/runtime/pkg/direct-volume/utils.go): volume-type, device, fstype,
 * metadata {string: string}, options [string], keys in any letter case. crustd requires only
 * `device`. A null is an absent field, as in Go. Unknown fields are ignored.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/base64url.h"
#include "lib/json.h"
#include "lib/result.h"
#include "lib/sha256.h"
#include "observe/observe.h"

struct mount_info {
    char *volume_type, *device, *fs_type; /* as written; NULL absent */
    char *options, *metadata; /* JSON text, secrets redacted (lib/secret.h); NULL absent */
    bool read_only;           /* according to the options */
    enum resize_policy policy;
};

/* An enum file_text or -ENOMEM. */
int mount_info_parse(const char *text, size_t length, struct mount_info *ret_info,
                     struct error *error);
void mount_info_done(struct mount_info *info);

/* ---- fingerprint ---------------------------------------------------------------------------- */

/* A hash over everything in a metadata directory, which changes with any of it.
 *
 * The directory's own ctime is left out, because moving the directory changes it. Everything that a
 * writer changes is included: names, inodes, owners, modes, sizes, times and the bytes themselves.
 */

/* Outcomes. */
enum {
    FINGERPRINT_TAKEN,
    FINGERPRINT_ABSENT,
    FINGERPRINT_UNFIT, /* not just a few regular files of root's, or written during the reading */
};

/* Of the open directory. error says why it is unfit. */
int fingerprint_directory(int directory, char ret_text[static SHA256_HEX_BYTES],
                          struct error *error);

/* Of one empty file in the directory, which may be moved by itself. */
int fingerprint_file(int directory, const char *name, char ret_text[static SHA256_HEX_BYTES]);

/* ---- entry name ----------------------------------------------------------------------------- */

/* Decodes a directory name below a volumes root; text only, no I/O. */

/* Outcomes. */
enum {
    ENTRY_NAME_PATH,   /* padded base64url of an absolute path: Kata's layout */
    ENTRY_NAME_SHA256, /* 64 lower-case hex digits: the KEP's layout, does not reveal the path */
    ENTRY_NAME_OTHER,  /* neither; the error has the reason */
};

enum { ENTRY_PATH_BYTES = BASE64URL_PATH_BYTES + 1 };

/* ret_path is filled for ENTRY_NAME_PATH only: byte-exact, absolute, UTF-8 without NUL. */
int entry_name_decode(const char *name, char ret_path[static ENTRY_PATH_BYTES],
                      struct error *error);

enum { SHOWN_NAME_BYTES = 97 };

/* A name from outside, made fit for a problem's text: escaped, and cut with "...". */
void entry_name_show(const char *name, char ret_shown[static SHOWN_NAME_BYTES]);

/* ---- publish path --------------------------------------------------------------------------- */

/* The paths at which the kubelet publishes volumes. */

enum observed_flag { OBSERVED_UNSAID, OBSERVED_NO, OBSERVED_YES };

struct observed_publish_path {
    bool is_publish_path; /* KUBELET/pods/UID/volumes/kubernetes.io~csi/PV/mount */
    unsigned kubelet;     /* index of the kubelet root that it lies below */
    char pod_uid[64];
    char pv[256];
    char driver[256];                  /* vol_data.json; "" */
    char volume_handle[512];           /* vol_data.json; "" */
    enum observed_flag defer_fs_mount; /* vol_data.json */
    char problem[256];                 /* why vol_data.json is there and not read; "" */
    bool has_plugin_file;              /* csiPlugin.json at the volume's root */
    char subpaths[PATH_MAX]; /* where the kubelet binds parts of the volume (subPath); "" */
    bool is_empty_dir;       /* …/kubernetes.io~empty-dir/…: the shim's own, left alone */
};

/* kubelet: the roots to try in turn. The path is only parsed, not opened; only vol_data.json beside
 * the publish path is opened, below the kubelet root. 0 or -errno. */
int observe_publish_path(int root, const char *const *kubelet, unsigned kubelets,
                         const char *target_path, struct observed_publish_path *ret_path);

/* Walks, pod by pod, through every publish path that the kubelets' directories allow, whether or
 * not `mount` exists yet. */
struct publish_walk;
int publish_walk_new(int root, const char *const *kubelet, unsigned kubelets,
                     struct publish_walk **ret_walk); /* kubelet: borrowed */
struct publish_walk *publish_walk_free(struct publish_walk *walk);

/* Calls back with the paths of the next pod, if there is one. An enum progress_outcome; -errno; or
 * the callback's result, if that is not 0. */
int publish_walk_next(struct publish_walk *walk, int (*callback)(void *userdata, const char *path),
                      void *userdata);
