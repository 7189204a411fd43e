/* SPDX-License-Identifier: Apache-2.0 */
/* observe.h - safe readers: each turns one thing of the world, as it is now, into facts.
 *
 * Nothing here remembers, decides or acts. What is read is hostile: bounded, checked, and a fault
 * is a sentence that names file and place, never a crash and never a guess. Facts own their memory:
 * every _init'ed or filled structure ends in its _done.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/path.h"
#include "lib/result.h"
#include "model/volume.h"
#include "observe/publish_path.h"
#include "observe/sandbox.h"

/* ---- a metadata directory ---------------------------------------------------------------- */

enum { OBSERVE_ENTRY_NAMES = 64, OBSERVE_SANDBOXES = 16 };

/* What one directory below kata_volumes or crust_volumes says. */
struct observed_entry {
    char *
        target_path; /* from the base64url name; NULL: a sha256 name, or one that does not decode */
    bool is_hashed;  /* a sha256 name */
    char *problem;   /* NULL, or what is wrong and where: then the mount_info members are empty */
    bool try_again;  /* the problem may be a write in progress (empty, cut, changing) */
    char *remark;    /* NULL, or the names in the directory that were ignored, and why */
    struct path_identity directory;
    char mount_info_sha256[65];
    char *volume_type, *device, *fs_type; /* as written; NULL absent */
    char *options, *metadata;             /* JSON text, secrets redacted (lib/secret.h) */
    enum resize_policy policy;            /* metadata key crust.resize */
    bool read_only;                       /* by its mount options */
    unsigned sandboxes;                   /* names of sandbox-id files, sorted */
    char *sandbox[OBSERVE_SANDBOXES];
};

/* What one more mount option makes of it: the last of "ro" and "rw" counts, as mount(8) has it. */
bool observe_read_only(bool so_far, const char *option);

/* Outcomes. */
enum {
    OBSERVED,
    OBSERVED_ABSENT,
    OBSERVED_UNFINISHED, /* of a sandbox: there is more than is read in one go, observe it again */
};

/* Reads directory `name` below `directory` (the open volumes root). OBSERVED, OBSERVED_ABSENT or
 * -errno (a fault of this machine, such as -EMFILE: nothing was learned). */
int observe_entry(int directory, const char *name, struct observed_entry *ret_entry);
/* The same of a directory that somebody has opened by path_open_directory_below(): what that
 * returned, and the descriptor, which stays the caller's. */
int observe_opened_entry(int opened, int fd, const char *name, struct observed_entry *ret_entry);
void observed_entry_done(struct observed_entry *entry);

/* ---- a device ----------------------------------------------------------------------------- */

struct observed_device {
    enum device_kind kind;
    char name[256]; /* /dev/NAME as the kernel calls it; a file's path as given */
    uint32_t major, minor;
    uint64_t diskseq; /* 0: the kernel has none */
    uint64_t file_device, inode;
    uint64_t size_bytes;
};

/* Follows links below root, never opens the device: size and diskseq come from sysfs. sysfs: an
 * open directory. OBSERVED, OBSERVED_ABSENT (also a dangling link, a node without its device) or
 * -errno. */
int observe_device_path(int root, int sysfs, const char *path, struct observed_device *ret_device);
int observe_device_number(int sysfs, uint32_t major, uint32_t minor,
                          struct observed_device *ret_device);

/* sysfs at paths.sysfs below root. */
int observe_open_sysfs(int root, const char *path, int *ret_fd);

/* ---- what the host itself uses ------------------------------------------------------------ */

/* Device numbers that are mounted on the host or used as swap, a partition's and a holder's (dm,
 * md, …) counted for the lower devices. A snapshot of the mount table, refreshed when watch says
 * so. */
struct observed_mounts;
int observe_mounts(int sysfs, struct observed_mounts **ret_mounts);
struct observed_mounts *observed_mounts_free(struct observed_mounts *mounts);
/* Where it is mounted ("swap" for swap space), or NULL. */
const char *observed_mounts_find(const struct observed_mounts *mounts, int sysfs, uint32_t major,
                                 uint32_t minor);

/* Who on the host holds the device or a partition of it (dm, md, bcache), by name. OBSERVED,
 * OBSERVED_ABSENT: nobody does, or -errno. */
int observe_holder(int sysfs, uint32_t major, uint32_t minor, char *ret_text, size_t size);

typedef void observe_device_callback(void *userdata, uint32_t major, uint32_t minor);

/* Each number that is in use in one of the two snapshots only. */
void observed_mounts_each_change(const struct observed_mounts *before,
                                 const struct observed_mounts *after,
                                 observe_device_callback *callback, void *userdata);

/* ---- what a device stands on -------------------------------------------------------------- */

enum { OBSERVE_LAYERS = 32 };

enum observed_layer_kind {
    LAYER_DISK, /* stands on nothing, as far as growth goes */
    LAYER_PARTITION,
    LAYER_CRYPT,     /* LUKS and plain, by dm-crypt */
    LAYER_LVM,       /* a logical volume */
    LAYER_MULTIPATH, /* its lower devices are its paths */
    LAYER_DM,        /* some other dm device */
    LAYER_OTHER,     /* md, bcache */
};

struct observed_layer {
    enum observed_layer_kind kind;
    unsigned above;  /* index of what stands on it, smaller than its own; 0 for the first */
    char label[128]; /* a dm device's own name; "" */
    struct observed_device device;
};

/* The device itself, then what it stands on, level by level: a partition's disk, a dm device's
 * slaves, and theirs. How many there are, at least one; what vanishes meanwhile is left out. */
unsigned observe_stack(int sysfs, const struct observed_device *device,
                       struct observed_layer ret_layer[static OBSERVE_LAYERS]);

/* The same, numbers only. */
void observe_each_lower_device(int sysfs, uint32_t major, uint32_t minor,
                               observe_device_callback *callback, void *userdata);

/* The disks of a SCSI device (one, for all that is known), by its path below /sys. */
void observe_scsi_disks(int sysfs, const char *devpath, observe_device_callback *callback,
                        void *userdata);
