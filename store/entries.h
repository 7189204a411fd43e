/* SPDX-License-Identifier: Apache-2.0 */
/* entries.h - metadata directories, and the volumes that they make. */
#pragma once

#include "model/volume.h"
#include "store/bounds.h"

struct store_device;

enum store_status { STORE_PRESENT, STORE_INVALID, STORE_QUARANTINED, STORE_REMOVED };

enum store_flag { STORE_UNSAID, STORE_NO, STORE_YES };

enum { STORE_ENTRY_SANDBOXES = 16 };

/* One metadata directory as it was read. `problem` set: it did not read well; then the volume keeps
 * its last good columns, becomes `invalid`, and only key, target_path and the sandboxes count. */
struct store_entry {
    enum volume_layout layout;
    const char *key;         /* the directory's name; of a raw block claim block:SHA256 */
    const char *target_path; /* NULL: name hides it (sha256) or does not decode */
    const char *problem;     /* NULL: fine */
    uint64_t directory_device, directory_inode;
    int64_t directory_born_ns; /* birth time, 0 unknown */
    const char *mount_info_sha256;
    const char *volume_type, *device, *fs_type; /* device as written */
    const char *options, *metadata;             /* JSON, secrets redacted already */
    enum resize_policy policy;
    bool read_only;         /* by its mount options */
    bool grows_file_system; /* the guest has a file system on it that is to be grown */
    const char *pv, *pod_uid, *driver, *volume_handle; /* NULL unknown */
    enum store_flag defer_fs_mount;
    const char *subpaths; /* directory below which parts of the volume would be bound; or NULL */
    const char *remark;   /* shown as its problem while it has none; NULL */
    unsigned sandboxes;
    const char *sandbox[STORE_ENTRY_SANDBOXES]; /* names of its sandbox-id files */
    const struct store_device *leads_to;        /* where `device` leads, if it was looked at */
};

/* A new volume's state is unknown/none until store_set_state(). A directory of another identity
 * under a known name ends the old volume and begins a new one. */
/* A flood of directories fills the store only up to a bound. */
enum { STORE_VOLUMES = 16384 };

enum store_put {
    STORE_PUT,
    STORE_TOO_MANY, /* a new volume, and there are STORE_VOLUMES already: nothing was written */
};

/* One read finds an entry that is as it was, on the device that it was on; a volume that nothing is
 * known of is put on its device as it is made. */
struct store_entry_put {
    int64_t volume_id;
    bool changed;
    bool
        is_on; /* the volume is on that device, which has its recorded size and stands on nothing */
};
int store_put_entry_on_device(struct store *store, const struct store_entry *entry,
                              struct store_entry_put *ret_put);

/* The directory is gone: a volume without any entry left becomes `removed`. ret_volume_id 0 if the
 * entry was not known. */
int store_remove_entry(struct store *store, enum volume_layout layout, const char *key,
                       int64_t *ret_volume_id);

/* The key of a raw block claim that no live sandbox has any more; "" none. As long as one of them
 * cannot be read, it may have any of them. */
int store_find_unclaimed(struct store *store, char ret_key[static STORE_KEY_BYTES]);

/* The live sandbox that still has a volume whose metadata is gone; "": none. */
int store_find_unstaged(struct store *store, int64_t volume_id,
                        char ret_sandbox_id[static STORE_SANDBOX_ID_BYTES]);

/* A client named the sandbox of the volume: the sandbox-id file stands for that. */
int store_note_published(struct store *store, int64_t volume_id, const char *sandbox_id);

/* The live volume of this target path. ret_volume_id 0: none. */
int store_find_volume(struct store *store, const char *target_path, int64_t *ret_volume_id);

/* Every known entry of a layout, for the difference against a scan. The callback must not write. */
int store_each_entry(struct store *store, enum volume_layout layout,
                     int (*callback)(void *userdata, const char *key), void *userdata);

/* The youngest entries of kubelet volumes, STORE_YOUNG at most. */
enum { STORE_YOUNG = 64 };
int store_each_young_entry(struct store *store, enum volume_layout layout,
                           int (*callback)(void *userdata, const char *key), void *userdata);

/* The name of its persistent volume, also of a removed one; "" if none is known. 0 or -errno. */
int store_get_pv(struct store *store, int64_t volume_id, char ret_pv[static STORE_KEY_BYTES]);
