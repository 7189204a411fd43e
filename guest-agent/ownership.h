/* SPDX-License-Identifier: Apache-2.0 */
/* ownership.h - a pod's fsGroup applied to a volume, as the kubelet does it.
 *
 * Every entry gets the group, and, unless it is a symbolic link, mode | 0660 (0440 for a volume
 * that is used read-only); directories also | 02110. A directory comes after what is in it and the
 * root last, so a walk that was interrupted is repeated under ON_ROOT_MISMATCH. That policy skips
 * the walk where the root has the group, setgid and 0770 (0550).
 *
 * Source: Kubernetes, pkg/volume/volume_linux.go. It differs from the kubelet in three points:
 * an entry that is right already is not touched, because chown(2) takes its file capabilities; a
 * directory that cannot be read does not end the walk; and other file systems are not entered.
 *
 * Nothing is reached by a path that a link could redirect. The names in the tree are the tenant's,
 * and so is its depth: the walk has a bounded number of descriptors, and 24 bytes a level.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "agent-client/drive_call.h"
#include "lib/result.h"

enum {
    OWNERSHIP_ERRORS = 8,    /* texts that are kept */
    OWNERSHIP_DEPTH = 131072 /* levels of directories; what is deeper fails */
};

enum ownership_outcome {
    OWNERSHIP_APPLIED,    /* to everything except count.failed single entries */
    OWNERSHIP_LEFT_ALONE, /* the root was right, and the policy asks for no more */
    OWNERSHIP_INCOMPLETE, /* directories could not be read, or were moved: the root is not changed
                           */
    OWNERSHIP_CANCELLED,  /* by `report`; the root is not changed */
    OWNERSHIP_READ_ONLY,  /* the file system is: nothing can be changed, and nothing was walked */
};

/* Called after every OWNERSHIP_REPORT_ENTRIES entries and every OWNERSHIP_REPORT_MS. false
 * cancels. */
typedef bool ownership_report(const struct drive_walk_count *count, void *userdata);

enum { OWNERSHIP_REPORT_ENTRIES = 1024, OWNERSHIP_REPORT_MS = 100 };

struct ownership_request {
    int directory; /* the root, O_PATH or not; a mount that is not attached yet is fine */
    gid_t group;
    enum drive_group_policy policy;
    bool read_only;           /* how the pod uses the volume */
    ownership_report *report; /* NULL: nobody asks */
    void *userdata;
    unsigned report_entries; /* in place of OWNERSHIP_REPORT_ENTRIES; 0: that */
};

struct ownership_result {
    struct drive_walk_count count;
    size_t error_count; /* of errors: the first ones */
    struct error errors[OWNERSHIP_ERRORS];
};

/* An outcome; or -errno, with ret_result empty, if the root itself cannot be read or memory is
 * short before the walk. ret_result is filled with every outcome. */
int ownership_apply(const struct ownership_request *request, struct ownership_result *ret_result);

/* The same with a status: OK, FAILED_PRECONDITION if an entry kept its group, or INTERNAL; with a
 * text unless OK. */
enum status_code ownership_set_group(const struct ownership_request *request,
                                     struct drive_walk_count *ret_count, struct error *error);
