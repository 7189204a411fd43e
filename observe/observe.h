/* SPDX-License-Identifier: Apache-2.0 */
/* observe.h - safe readers: each turns one object of the node, as it is now, into facts.
 *
 * Nothing here remembers, decides or acts. Input is hostile: it is bounded and checked, and a fault
 * is reported as a sentence that names file and place, never by a crash or a guess. Facts own their
 * memory: every structure that was initialised or filled is freed by its _done.
 */
#pragma once

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/encode.h"
#include "lib/json.h"
#include "lib/path.h"
#include "lib/result.h"
#include "model/volume.h"
#include "observe/observed_sandbox.h"

/* ---- a metadata directory ---------------------------------------------------------------- */

enum { OBSERVE_ENTRY_NAMES = 64, OBSERVE_SANDBOXES = 16 };

/* The content of one directory below kata_volumes or crust_volumes. */
struct observed_entry {
    char *target_path; /* from the base64url name; NULL: a sha256 name, or not decodable */
    bool is_hashed;    /* a sha256 name */
    char *problem;     /* NULL, or what is wrong and where; then the mount_info members are empty */
    bool try_again;    /* the problem may be a write in progress (empty, cut, changing) */
    char *remark;      /* NULL, or the names in the directory that were ignored, and why */
    struct path_identity directory;
    char mount_info_sha256[65];
    char *volume_type, *device, *fs_type; /* as written; NULL absent */
    char *options, *metadata;             /* JSON text, secrets redacted (lib/text.h) */
    enum resize_policy policy;            /* metadata key crust.resize */
    bool read_only;                       /* according to its mount options */
    bool is_raw;        /* a file system on it is the pod's affair: the guest's are not grown */
    unsigned sandboxes; /* names of sandbox-id files, sorted */
    char *sandbox[OBSERVE_SANDBOXES];
};

/* read_only after one more mount option: the last of "ro" and "rw" counts, as in mount(8). */
bool observe_read_only(bool so_far, const char *option);

/* Outcomes. */
enum {
    OBSERVED,
    OBSERVED_ABSENT,
    OBSERVED_UNFINISHED, /* of a sandbox: more than one call reads; observe it again */
};

/* Reads directory `name` below `directory` (the open volumes root). OBSERVED, OBSERVED_ABSENT or
 * -errno for a local failure, such as -EMFILE, that says nothing about the directory. */
int observe_entry(int directory, const char *name, struct observed_entry *ret_entry);
/* The same for a directory that the caller has opened with path_open_directory_below(): `opened` is
 * its result, and the descriptor stays the caller's. */
int observe_opened_entry(int opened, int fd, const char *name, struct observed_entry *ret_entry);
void observed_entry_done(struct observed_entry *entry);

/* ---- mountInfo.json -------------------------------------------------------------------------- */

/* Text in, facts out; no I/O.
 *
 * Fields as Kata reads them (src/runtime/pkg/direct-volume/utils.go): volume-type, device, fstype,
 * metadata {string: string}, options [string], keys in any letter case. crustd requires only
 * `device`. A null is an absent field, as in Go. Unknown fields are ignored.
 */

struct mount_info {
    char *volume_type, *device, *fs_type; /* as written; NULL absent */
    char *options, *metadata; /* JSON text, secrets redacted (lib/text.h); NULL absent */
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

/* ---- the kubelet ----------------------------------------------------------------------------- */

/* What the kubelet's own directories say about a published volume.
 *
 * KUBELET/pods/UID exists as long as the kubelet knows the pod. In it, volumes/kubernetes.io~csi/PV
 * holds vol_data.json from before NodePublishVolume until after NodeUnpublishVolume, and the leaf
 * `mount` (pkg/volume/csi of Kubernetes).
 */

/* Anything not known to be absent counts as present. */
struct observed_kubelet {
    bool pod;         /* KUBELET/pods/UID */
    bool leaf;        /* …/PV/mount */
    bool volume_data; /* …/PV/vol_data.json */
    char canary[64];  /* a pod that proves this is the kubelet's root; "": none, or not needed */
    dev_t device;     /* of KUBELET/pods; 0: it does not exist */
    bool elsewhere;   /* the node's first process sees another directory there */
};

/* pod_uid and pv are single components of a path (observe_publish_path). 0, or -errno for a local
 * failure that says nothing about the kubelet. */
int observe_kubelet(int root, const char *kubelet, const char *pod_uid, const char *pv,
                    struct observed_kubelet *ret_kubelet);

/* ---- publish path --------------------------------------------------------------------------- */

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
    bool is_block;           /* KUBELET/plugins/kubernetes.io/csi/volumeDevices/publish/PV/UID */
};

/* kubelet: the roots to try in turn. The path is only parsed, not opened; only vol_data.json beside
 * the publish path is opened, below the kubelet root. 0 or -errno. */
int observe_publish_path(int root, const char *const *kubelet, unsigned kubelets,
                         const char *target_path, struct observed_publish_path *ret_path);

/* Calls back with each raw block claim of a pod: its publish path, at which the driver has put the
 * device, and the device's number. 0, -errno or the callback's result, if that is not 0. */
int observe_each_block_claim(int root, const char *const *kubelet, unsigned kubelets,
                             const char *pod_uid,
                             int (*callback)(void *userdata, const char *path, dev_t device),
                             void *userdata);

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

/* ---- a device ----------------------------------------------------------------------------- */

struct observed_device {
    enum device_kind kind;
    char name[256]; /* /dev/NAME by the kernel's name; for a file, the path as given */
    uint32_t major, minor;
    uint64_t diskseq; /* 0: the kernel provides none */
    uint64_t file_device, inode;
    uint64_t size_bytes;
};

/* Follows links below root, never opens the device: size and diskseq come from sysfs. sysfs: an
 * open directory. OBSERVED, OBSERVED_ABSENT (also for a dangling link, or a device node without a
 * device) or -errno. */
int observe_device_path(int root, int sysfs, const char *path, struct observed_device *ret_device);
int observe_device_number(int sysfs, uint32_t major, uint32_t minor,
                          struct observed_device *ret_device);

/* Opens sysfs at paths.sysfs below root. */
int observe_open_sysfs(int root, const char *path, int *ret_fd);

/* ---- use by the host ---------------------------------------------------------------------- */

/* The devices that are mounted on the host or used as swap, by number. A partition or a holder (dm,
 * md, …) in use also makes its lower devices count as used. This is a snapshot of the mount table,
 * taken anew when the watcher reports a change. */
struct observed_mounts;
int observe_mounts(int sysfs, struct observed_mounts **ret_mounts);

/* The same in parts, because users can make the table as large as they like. sysfs stays the
 * caller's. */
struct mounts_reading;
int mounts_reading_new(int sysfs, struct mounts_reading **ret_reading);
struct mounts_reading *mounts_reading_free(struct mounts_reading *reading); /* returns NULL */

/* Reads until clock_processor() is `until_ns`. Returns an enum progress_outcome or -errno. DONE:
 * *ret_mounts has every mount that was there from the beginning to now, and is the caller's. */
int mounts_reading_go_on(struct mounts_reading *reading, uint64_t until_ns,
                         struct observed_mounts **ret_mounts);

struct observed_mounts *observed_mounts_free(struct observed_mounts *mounts);
/* Where it is mounted ("swap" for swap space), or NULL. */
const char *observed_mounts_find(const struct observed_mounts *mounts, int sysfs, uint32_t major,
                                 uint32_t minor);

/* What holds the device or a partition of it on the host (dm, md, bcache), by name. OBSERVED,
 * OBSERVED_ABSENT: nothing does, or -errno. */
int observe_holder(int sysfs, uint32_t major, uint32_t minor, char *ret_text, size_t size);

typedef void observe_device_callback(void *userdata, uint32_t major, uint32_t minor);

/* directory: of the partition, below sysfs. Other than 0 ends the walk and is its result. */
typedef int observe_partition_callback(void *userdata, const char *directory, uint32_t major,
                                       uint32_t minor);

/* Calls back with each partition of a disk. A disk that does not exist has none. -E2BIG: it has
 * more names than are looked at; another -errno. */
int observe_each_partition(int sysfs, uint32_t major, uint32_t minor,
                           observe_partition_callback *visit, void *userdata);

/* Calls back with each number that is in use in only one of the two snapshots. */
void observed_mounts_each_change(const struct observed_mounts *before,
                                 const struct observed_mounts *after,
                                 observe_device_callback *callback, void *userdata);

/* ---- lower devices ------------------------------------------------------------------------ */

enum { OBSERVE_LAYERS = 32 };

enum observed_layer_kind {
    LAYER_DISK, /* has no lower device that its size depends on */
    LAYER_PARTITION,
    LAYER_CRYPT,     /* LUKS and plain dm-crypt */
    LAYER_LVM,       /* a logical volume */
    LAYER_MULTIPATH, /* its lower devices are its paths */
    LAYER_DM,        /* some other dm device */
    LAYER_OTHER,     /* md, bcache */
};

struct observed_layer {
    enum observed_layer_kind kind;
    unsigned above;  /* index of the layer above it, smaller than its own; 0 for the first */
    char label[128]; /* a dm device's own name; "" */
    struct observed_device device;
};

/* The device itself, then its lower devices level by level: a partition's disk, a dm device's
 * slaves, and theirs. Returns how many there are, at least one; devices that vanish meanwhile are
 * left out. */
unsigned observe_stack(int sysfs, const struct observed_device *device,
                       struct observed_layer ret_layer[static OBSERVE_LAYERS]);

/* The same, as numbers only. false: there may be more of them. */
bool observe_each_lower_device(int sysfs, uint32_t major, uint32_t minor,
                               observe_device_callback *callback, void *userdata);

/* Calls back with the disks of a SCSI device (in practice one), given by its path below /sys. */
void observe_scsi_disks(int sysfs, const char *devpath, observe_device_callback *callback,
                        void *userdata);

/* ---- sysfs ---------------------------------------------------------------------------------- */

/* Small reads below an open /sys; links are followed inside it only. */

enum { SYSFS_PATH_BYTES = 320, SYSFS_TEXT_BYTES = 4096 };

/* The failures that callers distinguish. */
enum sysfs_failure {
    SYSFS_MISSING = -ENOENT, /* also: the device is gone */
    SYSFS_TOO_LONG = -EMSGSIZE,
    SYSFS_WRONG = -EBADMSG, /* not an attribute, or not in the expected form */
};

/* The text of one attribute without its final newline. 0, an enum sysfs_failure or another -errno;
 * then the content of ret_text is undefined. */
int sysfs_read_text(int sysfs, const char *path, char *ret_text, size_t size);
int sysfs_read_number(int sysfs, const char *path, uint64_t *ret_number);
int sysfs_read_device_number(int sysfs, const char *path, uint32_t *ret_major, uint32_t *ret_minor);

/* Finds "KEY=VALUE" in the text of a uevent file; false if it is missing or does not fit. */
bool sysfs_uevent_value(const char *text, const char *key, char *ret_value, size_t size);
