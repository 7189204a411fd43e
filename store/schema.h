/* SPDX-License-Identifier: Apache-2.0 */
/* schema.h - the database's shape: how it is made, brought up to date and recognised. */
#pragma once

#include "lib/encode.h"
#include "store/sql.h"
#include "store/store.h"

enum {
    SCHEMA_APPLICATION_ID = 0x43525354, /* "CRST" */
    SCHEMA_MINOR_VERSION = 3,           /* of the major version STORE_SCHEMA_VERSION */
};

/* The texts (schema.c). */
extern const char schema_tables[];
extern const char *const schema_minors[SCHEMA_MINOR_VERSION];
extern const char schema_drive_containers[]; /* of the second minor version */
extern const char schema_views[];

/* Makes everything in an empty database. */
int schema_create(struct sql_connection *connection);

/* Checks the statements that the file keeps, and brings an older minor version up to this one,
 * without secrets that it may hold. A newer one is left as it is. STORE_DAMAGED: a table, index or
 * view is not what a migration made. */
int schema_upgrade(struct sql_connection *connection, struct schema_upgrade *ret_upgrade);

/* Without that check. ret_minor: the minor version; 0: written by release 0.1.0. */
int schema_read_minor(struct sql_connection *connection, int64_t *ret_minor);

/* A step of a migration. */
int schema_drop_views(struct sql_connection *connection);

/* The SHA-256 of all statements that an open database keeps. */
int schema_digest(struct sql_connection *connection, char ret_hex[static SHA256_HEX_BYTES]);

/* A claim's name stands nowhere on a node, unless the CSI driver copied it to the metadata of
 * mountInfo.json (entry `e`): external-provisioner's --extra-create-metadata gives it these two
 * names. A pod is in the namespace of its claims; `s` is the sandbox that has the volume. */
#define E_CLAIM           E_METADATA("\"csi.storage.k8s.io/pvc/name\":\"")
#define E_CLAIM_NAMESPACE E_METADATA("\"csi.storage.k8s.io/pvc/namespace\":\"")
#define POD_NAMESPACE     "coalesce(s.pod_namespace, " E_CLAIM_NAMESPACE ")"

/* Such names need no escapes, and crustd writes the metadata without blanks. SQLite 3.40 calls its
 * JSON functions unsafe in a view of a file that is not trusted. */
#define E_METADATA(member)                                                                         \
    "CASE WHEN instr(e.metadata, '" member "') THEN " UNTIL_QUOTE(E_AFTER(member)) " END"
#define E_AFTER(member)   "substr(e.metadata, instr(e.metadata, '" member "') + length('" member "'))"
#define UNTIL_QUOTE(text) "substr(" text ", 1, instr(" text ", '\"') - 1)"

/* Claims `c` of a part of a volume: below its path, or where the kubelet binds parts of it; but not
 * a path that is a volume itself. */
#define CLAIMS_WITHIN(target_path, subpaths)                                                       \
    "(" CLAIM_BELOW(target_path) " OR " CLAIM_BELOW(subpaths) ")" AND_NO_VOLUME

#define CLAIM_BELOW(path) "(c.path > " path " || '/' AND c.path < " path " || '0')"
#define AND_NO_VOLUME                                                                              \
    " AND NOT EXISTS (SELECT 1 FROM volumes w WHERE w.target_path = c.path"                        \
    " AND w.removed_at IS NULL)"

/* Whether the resize of volume `v` does not proceed and needs attention: the one definition, for
 * the view and everything else. A volume that no sandbox uses is never blocked, and one that crustd
 * may only observe has no resize to stand still. 0 or 1. */
#define V_IS_STALLED                                                                               \
    "(v.removed_at IS NULL AND v.observed = 0 AND (v.state = 'blocked'"                            \
    " OR v.state = 'block_grown' AND v.reason NOT IN ('none', 'growing')))"

/* Whether a resize of volume `v` would not reach its file system and that needs attention: not if
 * it is so on purpose, because crustd may only observe or nobody may write. */
#define V_IS_NOT_RESIZABLE                                                                         \
    "(v.removed_at IS NULL AND v.observed = 0 AND v.resizable = 'no'"                              \
    " AND v.resizable_reason NOT IN ('policy', 'read_only'))"

/* The mapping in which a live sandbox still has the removed volume `v`: the one that was open when
 * the metadata went, unless the runtime's records or the VMM's list have lost the drive, or the
 * path was staged anew. A raw block claim goes with its container, and the runtime unplugs it then.
 * NULL: none. */
#define V_UNSTAGED_MAPPING                                                                         \
    "(SELECT max(u.mapping_id) FROM mappings u"                                                    \
    " JOIN sandboxes x ON x.sandbox_ref = u.sandbox_ref AND x.gone_at IS NULL"                     \
    " WHERE u.volume_id = v.volume_id AND u.until = v.removed_at AND coalesce(u.list, 0) >= 0"     \
    " AND NOT EXISTS (SELECT 1 FROM entries c WHERE c.entry_id = v.entry_id"                       \
    "  AND c.layout = 'none')"                                                                     \
    " AND (u.source <> 'persist' OR EXISTS (SELECT 1 FROM devices b"                               \
    "  JOIN sandbox_drives h ON h.sandbox_ref = u.sandbox_ref AND (h.file = b.name"                \
    "   OR h.major = b.major AND h.minor = b.minor) WHERE b.device_id = u.device_id))"             \
    " AND NOT EXISTS (SELECT 1 FROM volumes w WHERE w.path_sha256 = v.path_sha256"                 \
    "  AND w.volume_id > v.volume_id))"

/* What kind of volume entry `e` is. */
#define E_KIND "CASE e.layout WHEN 'none' THEN 'block_claim' ELSE 'direct_volume' END"

/* Mapping `m` is open, or its volume `v` was unstaged beside a VM that still has it. */
#define AND_IN_VM " AND (m.until IS NULL OR m.mapping_id = " V_UNSTAGED_MAPPING ")"

/* Whether the guest that has volume `v` says that its file system is abnormal. */
#define V_IS_ABNORMAL_IN_GUEST                                                                     \
    "v.volume_id IN (SELECT a.volume_id FROM guest_stats h JOIN mappings a"                        \
    " ON a.mapping_id = h.mapping_id AND a.until IS NULL WHERE h.condition = 'abnormal')"
