/* SPDX-License-Identifier: Apache-2.0 */
/* schema_0_1_0.c - the views of release 0.1.0 (minor version 0), to the letter: that release takes
 * a database with any other statement for damaged. Its tables are schema_tables.
 */
#include "store/schema.h"

/* As they were then, whatever schema.h has today. */
#undef CLAIMS_WITHIN
#undef CLAIM_BELOW
#define TIME(column) "strftime('%Y-%m-%dT%H:%M:%fZ', " column " / 1000.0, 'unixepoch')"

#define CLAIMS_WITHIN(target_path, subpaths)                                                       \
    "(" CLAIM_BELOW(target_path) " OR " CLAIM_BELOW(                                               \
        subpaths) ")"                                                                              \
                  " AND NOT EXISTS (SELECT 1 FROM volumes w WHERE w.target_path = c.path"          \
                  " AND w.removed_at IS NULL)"
#define CLAIM_BELOW(path) "(c.path > " path " || '/' AND c.path < " path " || '0')"

/* clang-format off */
const char schema_views_0_1_0[] =
    "CREATE VIEW audit_volumes AS\n"
    "SELECT v.volume_id,\n"
    "  CASE WHEN EXISTS (SELECT 1 FROM entries o WHERE o.volume_id = v.volume_id AND o.gone = 0\n"
    "    AND o.layout <> e.layout) THEN 'both' ELSE e.layout END AS layout,\n"
    "  e.key, v.target_path, e.pv, e.pod_uid, e.driver, e.volume_handle, e.volume_type,\n"
    "  e.device, e.fs_type, e.options, e.metadata, v.status,\n"
    "  coalesce((SELECT o.problem FROM entries o WHERE o.volume_id = v.volume_id\n"
    "    AND o.problem IS NOT NULL LIMIT 1), e.remark) AS problem,\n"
    "  CASE WHEN m.sandbox_ref IS NOT NULL\n"
    "    THEN (SELECT s.sandbox_id FROM sandboxes s WHERE s.sandbox_ref = m.sandbox_ref)\n"
    "    ELSE (SELECT CASE WHEN min(s.sandbox_id) = max(s.sandbox_id) THEN min(s.sandbox_id) END\n"
    "      FROM sandboxes s WHERE s.sandbox_ref IN (SELECT l.sandbox_ref FROM entries o\n"
    "        JOIN entry_sandboxes n ON n.entry_id = o.entry_id\n"
    "        JOIN sandboxes l ON l.sandbox_id = n.sandbox_id AND l.gone_at IS NULL\n"
    "        WHERE o.volume_id = v.volume_id AND o.gone = 0 UNION SELECT c.sandbox_ref\n"
    "        FROM sandbox_claims c WHERE c.path = v.target_path)) END AS sandbox_id,\n"
    "  d.size_bytes AS device_bytes, m.hypervisor_bytes, m.guest_bytes, v.state, v.reason,\n"
    "  " TIME("v.state_since") " AS state_since,\n"
    "  " TIME("v.next_attempt_ms") " AS next_attempt_at,\n"
    "  " TIME("v.first_seen") " AS first_seen,\n"
    "  " TIME("v.last_changed") " AS last_changed,\n"
    "  " TIME("v.removed_at") " AS removed_at,\n"
    "  e.defer_fs_mount,\n"
    "  CASE v.reason WHEN 'bypassed' THEN\n"
    "    (SELECT 'a container of sandbox ' || s.sandbox_id || ' mounts ' || c.path\n"
    "      FROM sandbox_claims c JOIN sandboxes s ON s.sandbox_ref = c.sandbox_ref\n"
    "      WHERE " CLAIMS_WITHIN("v.target_path", "e.subpaths") " LIMIT 1)\n"
    "  WHEN 'entries_disagree' THEN (SELECT group_concat(o.layout || '/' || o.key || ' names '\n"
    "    || o.device, ', ') FROM entries o WHERE o.volume_id = v.volume_id AND o.gone = 0)\n"
    "  END AS evidence\n"
    "FROM volumes v\n"
    "LEFT JOIN entries e ON e.entry_id = v.entry_id\n"
    "LEFT JOIN devices d ON d.device_id = v.device_id\n"
    "LEFT JOIN mappings m ON m.volume_id = v.volume_id AND m.until IS NULL;\n"

    "CREATE VIEW audit_sandboxes AS\n"
    "SELECT sandbox_id, runtime, hypervisor, vmm_pid, control_socket, agent_address,\n"
    "  pod_namespace, pod_name, CASE WHEN gone_at IS NULL THEN 'alive' ELSE 'gone' END AS status,\n"
    "  boot_id, " TIME("first_seen") " AS first_seen, " TIME("gone_at") " AS gone_at\n"
    "FROM sandboxes;\n"

    "CREATE VIEW audit_devices AS\n"
    "SELECT name AS device, CASE kind WHEN 'block' THEN major END AS major,\n"
    "  CASE kind WHEN 'block' THEN minor END AS minor, nullif(diskseq, 0) AS diskseq,\n"
    "  CASE kind WHEN 'block' THEN NULL ELSE inode END AS inode, size_bytes,\n"
    "  " TIME("first_seen") " AS first_seen, " TIME("last_changed") " AS last_changed\n"
    "FROM devices;\n"

    "CREATE VIEW audit_layers AS\n"
    "SELECT v.volume_id, l.position, d.name AS device, l.kind, l.label AS name, d.size_bytes,\n"
    "  CASE l.state WHEN 0 THEN 'in_step' WHEN 1 THEN 'pending' ELSE 'stale' END AS state,\n"
    "  l.remedy\n"
    "FROM volumes v\n"
    "JOIN layers l ON l.device_id = v.device_id\n"
    "JOIN devices d ON d.device_id = l.layer_id\n"
    "WHERE v.removed_at IS NULL;\n"

    "CREATE VIEW audit_mappings AS\n"
    "SELECT m.volume_id, v.target_path, s.sandbox_id, d.name AS device, m.drive_id,\n"
    "  m.guest_path, m.source, " TIME("m.since") " AS since, " TIME("m.until") " AS until\n"
    "FROM mappings m\n"
    "JOIN volumes v ON v.volume_id = m.volume_id\n"
    "JOIN sandboxes s ON s.sandbox_ref = m.sandbox_ref\n"
    "LEFT JOIN devices d ON d.device_id = m.device_id;\n"

    "CREATE VIEW audit_resizes AS\n"
    "SELECT r.resize_id, r.volume_id, v.target_path, r.sandbox_id, r.device, r.from_bytes,\n"
    "  r.to_bytes, r.state, r.reason, r.error, r.attempts,\n"
    "  " TIME("r.detected_at") " AS detected_at, " TIME("r.hypervisor_at") " AS hypervisor_at,\n"
    "  " TIME("r.guest_at") " AS guest_at, " TIME("r.finished_at") " AS finished_at\n"
    "FROM resizes r JOIN volumes v ON v.volume_id = r.volume_id;\n"

    "CREATE VIEW audit_cleanups AS\n"
    "SELECT cleanup_id, volume_id, key, target_path, decision, reason, evidence, mount_info,\n"
    "  mount_info_sha256, " TIME("at") " AS at\n"
    "FROM cleanups WHERE decision <> 'intended';\n"

    "CREATE VIEW audit_journal AS\n"
    "SELECT seq, " TIME("at") " AS at, kind, volume_id, sandbox_id, device, detail\n"
    "FROM journal;\n";
/* clang-format on */
