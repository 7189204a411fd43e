/* SPDX-License-Identifier: Apache-2.0 */
/* schema.c - tables, indices and the audit views, as text.
 *
 *     volumes ──< entries ──< entry_sandboxes     what stands in the metadata directories
 *        │  └───> devices                         what the path leads to
 *        ├──< mappings >── sandboxes ──< sandbox_drives      who has it, and how far it got
 *        │                        └────< sandbox_claims      paths that its own records name
 *        │        └─── guest_stats                 what the guest last said of its file system
 *        └──< resizes                             each resize, its states and times
 *     devices ──< layers                       what a device stands on, if on anything
 *     sandboxes ──< helper_runs                what a crash may have left in a guest
 *     sandboxes ──< drive_mounts               disks that clients attached to it
 *     cleanups ──< trash                          what became of stale metadata, and what lies in
 *     journal                                     the trash or is on its way; history
 *     clock_spans                              when history was last trimmed because of its age
 *
 * A volume is one row per life of a target path: its columns that come from mountInfo.json live in
 * `entries`, one row per metadata directory, and volumes.entry_id names the one that leads. (That
 * is no foreign key: the two tables would then wait for each other.) The last entry of a removed
 * volume stays, marked gone, so that an auditor still sees what it was.
 *
 * A row of `trash` lives from the commit of the intent to move metadata away until its bytes are
 * deleted, or are back in their place. The cleanup that it belongs to is shown once it is decided.
 *
 * Indices enforce "at most one": one live volume per path, one live entry per name, one live
 * sandbox per id, one open binding and one open resize per volume. Open, live and alive all mean
 * that the column with the end time is NULL.
 *
 * Unknown is NULL, never 0. Times are milliseconds since 1970; *_ns count since the boot that
 * meta.boot_id names. Numbers that are unsigned elsewhere (inodes) keep their 64 bits.
 *
 * Versions. user_version is the major version. Within it a database has a minor version, and every
 * program of that major version works with every minor one, older or newer than its own (how:
 * schema_version.c). So a minor version only adds: tables, indices, and columns that an older
 * program may leave out when it inserts a row (NULL allowed, or with a DEFAULT).
 *
 *     schema_tables    the tables of minor version 0, as release 0.1.0 made them: never changed
 *     schema_minors    what each later minor version adds: appended to, until it is released
 *     schema_views     the views of the newest minor version: the one text, changed in place
 *
 * Views are the contract with auditors: columns may be added at their end, nothing else. They use
 * only what the sqlite3 tool 3.40 has built in.
 */
#include "store/schema.h"

/* The PV name of a volume, which its leading metadata directory has. */
#define PV(volume) "(SELECT e.pv FROM entries e WHERE e.entry_id = " volume ".entry_id) AS pv"
#define PV_OF(volume_id)                                                                           \
    "(SELECT e.pv FROM volumes w JOIN entries e ON e.entry_id = w.entry_id WHERE w.volume_id "     \
    "= " volume_id ") AS pv"

#define TIME(column) "strftime('%Y-%m-%dT%H:%M:%fZ', " column " / 1000.0, 'unixepoch')"

/* clang-format off */
const char schema_tables[] =
    "CREATE TABLE meta (\n"
    "  one INTEGER PRIMARY KEY CHECK (one = 1),\n"
    "  boot_id TEXT NOT NULL,\n"
    "  checkpoints INTEGER NOT NULL DEFAULT 0,\n"
    "  live_volumes INTEGER NOT NULL DEFAULT 0\n"
    ") STRICT;\n"

    "CREATE TABLE devices (\n"
    "  device_id INTEGER PRIMARY KEY AUTOINCREMENT,\n"
    "  boot_id TEXT NOT NULL,\n"
    "  kind TEXT NOT NULL CHECK (kind IN ('block', 'file', 'other')),\n"
    "  name TEXT NOT NULL,\n"
    "  major INTEGER NOT NULL,\n"
    "  minor INTEGER NOT NULL,\n"
    "  diskseq INTEGER NOT NULL,\n"
    "  file_device INTEGER NOT NULL,\n"
    "  inode INTEGER NOT NULL,\n"
    "  size_bytes INTEGER NOT NULL,\n"
    "  first_size INTEGER NOT NULL,\n"
    "  size_since_ns INTEGER NOT NULL,\n"
    "  announced INTEGER NOT NULL DEFAULT 0,\n"
    "  rescanned_ns INTEGER,\n"
    "  first_seen INTEGER NOT NULL,\n"
    "  last_changed INTEGER NOT NULL\n"
    ") STRICT;\n"
    "CREATE UNIQUE INDEX devices_by_number ON devices (major, minor, diskseq, boot_id)"
    " WHERE kind = 'block';\n"
    "CREATE UNIQUE INDEX devices_by_inode ON devices (inode, file_device, boot_id)"
    " WHERE kind <> 'block';\n"
    "CREATE INDEX devices_by_age ON devices (last_changed);\n"

    "CREATE TABLE layers (\n"
    "  device_id INTEGER NOT NULL REFERENCES devices ON DELETE CASCADE,\n"
    "  position INTEGER NOT NULL,\n"
    "  layer_id INTEGER NOT NULL REFERENCES devices,\n"
    "  above INTEGER NOT NULL,\n"
    "  kind TEXT NOT NULL,\n"
    "  label TEXT,\n"
    "  base_bytes INTEGER NOT NULL,\n"
    "  above_bytes INTEGER NOT NULL,\n"
    "  state INTEGER NOT NULL,\n"
    "  remedy TEXT,\n"
    "  PRIMARY KEY (device_id, position)\n"
    ") STRICT, WITHOUT ROWID;\n"
    "CREATE INDEX layers_by_layer ON layers (layer_id);\n"

    "CREATE TABLE volumes (\n"
    "  volume_id INTEGER PRIMARY KEY AUTOINCREMENT,\n"
    "  target_path TEXT,\n"
    "  path_sha256 TEXT,\n"
    "  entry_id INTEGER,\n"
    "  status TEXT NOT NULL CHECK (status IN ('present', 'invalid', 'quarantined', 'removed')),\n"
    "  device_id INTEGER REFERENCES devices,\n"
    "  state TEXT NOT NULL,\n"
    "  reason TEXT NOT NULL,\n"
    "  state_since INTEGER NOT NULL,\n"
    "  attempts INTEGER NOT NULL DEFAULT 0,\n"
    "  next_attempt_ns INTEGER,\n"
    "  next_attempt_ms INTEGER,\n"
    "  first_seen INTEGER NOT NULL,\n"
    "  last_changed INTEGER NOT NULL,\n"
    "  removed_at INTEGER\n"
    ") STRICT;\n"
    "CREATE UNIQUE INDEX volumes_by_path ON volumes (target_path) WHERE removed_at IS NULL;\n"
    "CREATE INDEX volumes_by_hash ON volumes (path_sha256) WHERE path_sha256 IS NOT NULL;\n"
    "CREATE INDEX volumes_hidden ON volumes (volume_id)"
    " WHERE target_path IS NULL AND removed_at IS NULL;\n"
    "CREATE INDEX volumes_blocked ON volumes (volume_id) WHERE state = 'blocked';\n"
    "CREATE INDEX volumes_by_device ON volumes (device_id);\n"
    "CREATE INDEX volumes_waiting ON volumes (next_attempt_ns)"
    " WHERE next_attempt_ns IS NOT NULL;\n"
    "CREATE INDEX volumes_removed ON volumes (removed_at) WHERE removed_at IS NOT NULL;\n"

    "CREATE TABLE entries (\n"
    "  entry_id INTEGER PRIMARY KEY,\n"
    "  volume_id INTEGER NOT NULL REFERENCES volumes ON DELETE CASCADE,\n"
    "  layout TEXT NOT NULL CHECK (layout IN ('kata', 'crust')),\n"
    "  key TEXT NOT NULL,\n"
    "  gone INTEGER NOT NULL DEFAULT 0,\n"
    "  problem TEXT,\n"
    "  directory_device INTEGER,\n"
    "  directory_inode INTEGER,\n"
    "  directory_born_ns INTEGER,\n"
    "  mount_info_sha256 TEXT,\n"
    "  volume_type TEXT,\n"
    "  device TEXT,\n"
    "  fs_type TEXT,\n"
    "  options TEXT,\n"
    "  metadata TEXT,\n"
    "  policy INTEGER NOT NULL DEFAULT 0,\n"
    "  pv TEXT,\n"
    "  pod_uid TEXT,\n"
    "  driver TEXT,\n"
    "  volume_handle TEXT,\n"
    "  stale_reason TEXT,\n"
    "  stale_fingerprint TEXT,\n"
    "  stale_since_ns INTEGER,\n"
    "  restored TEXT,\n"
    "  defer_fs_mount INTEGER,\n"
    "  subpaths TEXT,\n"
    "  remark TEXT\n"
    ") STRICT;\n"
    "CREATE UNIQUE INDEX entries_by_name ON entries (key, layout) WHERE gone = 0;\n"
    "CREATE INDEX entries_by_volume ON entries (volume_id);\n"
    "CREATE INDEX entries_of_kubelet ON entries (layout) WHERE gone = 0 AND pv IS NOT NULL;\n"
    "CREATE INDEX entries_by_subpaths ON entries (subpaths) WHERE subpaths IS NOT NULL;\n"

    "CREATE TABLE entry_sandboxes (\n"
    "  entry_id INTEGER NOT NULL REFERENCES entries ON DELETE CASCADE,\n"
    "  sandbox_id TEXT NOT NULL,\n"
    "  stale_since_ns INTEGER,\n"
    "  restored INTEGER NOT NULL DEFAULT 0,\n"
    "  published INTEGER NOT NULL DEFAULT 0,\n"
    "  PRIMARY KEY (entry_id, sandbox_id)\n"
    ") STRICT, WITHOUT ROWID;\n"
    "CREATE INDEX entry_sandboxes_by_sandbox ON entry_sandboxes (sandbox_id);\n"

    "CREATE TABLE sandboxes (\n"
    "  sandbox_ref INTEGER PRIMARY KEY AUTOINCREMENT,\n"
    "  boot_id TEXT NOT NULL,\n"
    "  sandbox_id TEXT NOT NULL,\n"
    "  runtime TEXT NOT NULL,\n"
    "  hypervisor TEXT NOT NULL,\n"
    "  vmm_pid INTEGER,\n"
    "  vmm_start_ns INTEGER,\n"
    "  control_socket TEXT,\n"
    "  agent_address TEXT,\n"
    "  pod_namespace TEXT,\n"
    "  pod_name TEXT,\n"
    "  vmm_version TEXT,\n"
    "  companion_ability TEXT,\n"
    "  agent_ability TEXT,\n"
    "  shim_ability TEXT,\n"
    "  exit_seen INTEGER NOT NULL DEFAULT 0,\n"
    "  first_seen INTEGER NOT NULL,\n"
    "  gone_at INTEGER\n"
    ") STRICT;\n"
    "CREATE UNIQUE INDEX sandboxes_alive ON sandboxes (sandbox_id) WHERE gone_at IS NULL;\n"
    "CREATE INDEX sandboxes_by_id ON sandboxes (sandbox_id);\n"
    "CREATE INDEX sandboxes_gone ON sandboxes (gone_at) WHERE gone_at IS NOT NULL;\n"

    "CREATE TABLE sandbox_drives (\n"
    "  sandbox_ref INTEGER NOT NULL REFERENCES sandboxes ON DELETE CASCADE,\n"
    "  position INTEGER NOT NULL,\n"
    "  mount_source TEXT,\n"
    "  file TEXT,\n"
    "  major INTEGER NOT NULL,\n"
    "  minor INTEGER NOT NULL,\n"
    "  drive_id TEXT,\n"
    "  guest_path TEXT,\n"
    "  PRIMARY KEY (sandbox_ref, position)\n"
    ") STRICT, WITHOUT ROWID;\n"

    "CREATE TABLE sandbox_claims (\n"
    "  sandbox_ref INTEGER NOT NULL REFERENCES sandboxes ON DELETE CASCADE,\n"
    "  path TEXT NOT NULL,\n"
    "  source TEXT NOT NULL,\n"
    "  guest_path TEXT,\n"
    "  PRIMARY KEY (sandbox_ref, path)\n"
    ") STRICT, WITHOUT ROWID;\n"
    "CREATE INDEX sandbox_claims_by_path ON sandbox_claims (path);\n"

    "CREATE TABLE mappings (\n"
    "  mapping_id INTEGER PRIMARY KEY AUTOINCREMENT,\n"
    "  volume_id INTEGER NOT NULL REFERENCES volumes,\n"
    "  sandbox_ref INTEGER NOT NULL REFERENCES sandboxes,\n"
    "  device_id INTEGER REFERENCES devices,\n"
    "  drive_id TEXT,\n"
    "  guest_path TEXT,\n"
    "  source TEXT NOT NULL,\n"
    "  first_bytes INTEGER,\n"
    "  largest_bytes INTEGER,\n"
    "  hypervisor_bytes INTEGER,\n"
    "  guest_bytes INTEGER,\n"
    "  guest_synced_bytes INTEGER,\n"
    "  hypervisor_reason TEXT,\n"
    "  guest_reason TEXT,\n"
    "  since INTEGER NOT NULL,\n"
    "  until INTEGER\n"
    ") STRICT;\n"
    "CREATE UNIQUE INDEX mappings_open ON mappings (volume_id) WHERE until IS NULL;\n"
    "CREATE INDEX mappings_by_volume ON mappings (volume_id);\n"
    "CREATE INDEX mappings_by_sandbox ON mappings (sandbox_ref);\n"
    "CREATE INDEX mappings_by_device ON mappings (device_id);\n"
    "CREATE INDEX mappings_closed ON mappings (until) WHERE until IS NOT NULL;\n"

    "CREATE TABLE resizes (\n"
    "  resize_id INTEGER PRIMARY KEY AUTOINCREMENT,\n"
    "  volume_id INTEGER NOT NULL REFERENCES volumes,\n"
    "  sandbox_id TEXT,\n"
    "  device TEXT,\n"
    "  from_bytes INTEGER,\n"
    "  to_bytes INTEGER NOT NULL,\n"
    "  state TEXT NOT NULL,\n"
    "  reason TEXT NOT NULL,\n"
    "  error TEXT,\n"
    "  attempts INTEGER NOT NULL DEFAULT 0,\n"
    "  detected_at INTEGER NOT NULL,\n"
    "  hypervisor_at INTEGER,\n"
    "  guest_at INTEGER,\n"
    "  finished_at INTEGER\n"
    ") STRICT;\n"
    "CREATE UNIQUE INDEX resizes_open ON resizes (volume_id) WHERE finished_at IS NULL;\n"
    "CREATE INDEX resizes_by_volume ON resizes (volume_id);\n"
    "CREATE INDEX resizes_finished ON resizes (finished_at) WHERE finished_at IS NOT NULL;\n"

    "CREATE TABLE cleanups (\n"
    "  cleanup_id INTEGER PRIMARY KEY AUTOINCREMENT,\n"
    "  volume_id INTEGER,\n"
    "  key TEXT NOT NULL,\n"
    "  target_path TEXT,\n"
    "  decision TEXT NOT NULL"
    " CHECK (decision IN ('intended', 'kept', 'removed', 'put-back', 'restored', 'failed')),\n"
    "  reason TEXT NOT NULL,\n"
    "  evidence TEXT,\n"
    "  mount_info TEXT,\n"
    "  mount_info_sha256 TEXT,\n"
    "  at INTEGER NOT NULL\n"
    ") STRICT;\n"
    "CREATE INDEX cleanups_by_age ON cleanups (at);\n"
    "CREATE INDEX cleanups_by_volume ON cleanups (volume_id);\n"

    "CREATE TABLE trash (\n"
    "  cleanup_id INTEGER PRIMARY KEY REFERENCES cleanups,\n"
    "  volume_id INTEGER NOT NULL,\n"
    "  layout TEXT NOT NULL CHECK (layout IN ('kata', 'crust')),\n"
    "  key TEXT NOT NULL,\n"
    "  file TEXT,\n"
    "  directory TEXT NOT NULL,\n"
    "  name TEXT NOT NULL,\n"
    "  step TEXT NOT NULL\n"
    " CHECK (step IN ('intended', 'moved', 'kept', 'restoring', 'deleting')),\n"
    "  fingerprint TEXT NOT NULL,\n"
    "  directory_device INTEGER,\n"
    "  directory_inode INTEGER,\n"
    "  directory_born_ns INTEGER,\n"
    "  since_ns INTEGER NOT NULL\n"
    ") STRICT;\n"
    "CREATE INDEX trash_by_volume ON trash (volume_id);\n"
    "CREATE INDEX trash_by_key ON trash (key);\n"
    "CREATE INDEX trash_by_step ON trash (step, since_ns);\n"

    "CREATE TABLE journal (\n"
    "  seq INTEGER PRIMARY KEY,\n"
    "  at INTEGER NOT NULL,\n"
    "  kind TEXT NOT NULL,\n"
    "  volume_id INTEGER,\n"
    "  sandbox_id TEXT,\n"
    "  device TEXT,\n"
    "  detail TEXT\n"
    ") STRICT;\n"
    "CREATE INDEX journal_by_volume ON journal (volume_id) WHERE volume_id IS NOT NULL;\n";

/* TO ADD A COLUMN, A TABLE OR AN INDEX: append its statement to the last entry, which is not
 * released yet. A released entry is never changed; after a release, a new one is begun and
 * SCHEMA_MINOR_VERSION raised.
 *
 *     "ALTER TABLE volumes ADD COLUMN example INTEGER;\n"
 *
 * After a rollback an older program writes the same file without knowing what is here: it leaves
 * the columns out when it inserts, changes others beside them, and deletes rows. So what is read
 * from a column must bear being NULL or old, and a reference to another table says ON DELETE
 * CASCADE.
 *
 * schema_minor is read by every later release: its columns stay as they are. Nothing reads
 * leftovers any more. */
const char *const schema_minors[SCHEMA_MINOR_VERSION] = {
    /* 1 */
    "CREATE TABLE schema_minor (\n"
    "  one INTEGER PRIMARY KEY CHECK (one = 1),\n"
    "  version INTEGER NOT NULL,\n"
    "  schema_sha256 TEXT NOT NULL,\n"
    "  leftovers INTEGER NOT NULL DEFAULT 0\n"
    ") STRICT;\n"
    "ALTER TABLE volumes ADD COLUMN observed INTEGER NOT NULL DEFAULT 0;\n"
    "CREATE TABLE guest_stats (\n"
    "  mapping_id INTEGER PRIMARY KEY REFERENCES mappings ON DELETE CASCADE,\n"
    "  used_bytes INTEGER,\n"
    "  available_bytes INTEGER,\n"
    "  condition TEXT CHECK (condition IN ('normal', 'abnormal')),\n"
    "  message TEXT,\n"
    "  read_at INTEGER,\n"
    "  failures INTEGER NOT NULL DEFAULT 0\n"
    ") STRICT;\n"
    "CREATE INDEX guest_stats_abnormal ON guest_stats (mapping_id)"
    " WHERE condition = 'abnormal';\n"
    /* Of the runtime's records: what a claiming container has, and what the VMM's list was read
     * against. What release 0.1.0 inferred about open mappings was never seen. */
    "ALTER TABLE sandbox_claims ADD COLUMN carrier INTEGER;\n"
    "ALTER TABLE sandbox_claims ADD COLUMN drive INTEGER;\n"
    "ALTER TABLE mappings ADD COLUMN record INTEGER;\n"
    "ALTER TABLE mappings ADD COLUMN list INTEGER;\n"
    "ALTER TABLE mappings ADD COLUMN list_error TEXT;\n"
    "UPDATE mappings SET first_bytes = coalesce(hypervisor_bytes, first_bytes),"
    " hypervisor_bytes = NULL, guest_synced_bytes ="
    " CASE WHEN guest_bytes IS NOT NULL THEN guest_synced_bytes END WHERE until IS NULL;\n"
    "ALTER TABLE volumes ADD COLUMN evidence TEXT;\n"
    "ALTER TABLE volumes ADD COLUMN filled_device_id INTEGER;\n"
    "ALTER TABLE volumes ADD COLUMN filled_bytes INTEGER;\n"
    "ALTER TABLE entries ADD COLUMN read_only INTEGER NOT NULL DEFAULT 0;\n"
    /* What keeps the VMM from resizing the drive: a reason, or none; NULL: not known. Whether the
     * last call had the guest grow the file system; NULL: there was none. Whether a resize would
     * reach the volume's file system: yes, no or unknown; NULL: nobody uses it. */
    "ALTER TABLE mappings ADD COLUMN obstacle TEXT;\n"
    "ALTER TABLE mappings ADD COLUMN guest_proven INTEGER;\n"
    "ALTER TABLE volumes ADD COLUMN resizable TEXT;\n"
    "ALTER TABLE volumes ADD COLUMN resizable_reason TEXT;\n"
    /* Not used any more, nor is the index entries_forbidding. */
    "ALTER TABLE mappings ADD COLUMN list_doubt TEXT;\n"
    "ALTER TABLE mappings ADD COLUMN hypervisor_error TEXT;\n"
    /* A helper that was about to be brought into a guest: what may be left of it after a crash. */
    "CREATE INDEX entries_forbidding ON entries (volume_id) WHERE gone = 0 AND policy > 0;\n"
    /* Stale metadata, for the gauge; whether the breaker keeps it until a person confirms. */
    "CREATE INDEX entries_stale ON entries (stale_reason)"
    " WHERE gone = 0 AND stale_reason IS NOT NULL;\n"
    "ALTER TABLE entries ADD COLUMN stale_held INTEGER NOT NULL DEFAULT 0;\n"
    "ALTER TABLE sandboxes ADD COLUMN helper_ability TEXT;\n"
    "CREATE TABLE helper_runs (\n"
    "  name TEXT PRIMARY KEY,\n"
    "  sandbox_ref INTEGER NOT NULL REFERENCES sandboxes ON DELETE CASCADE,\n"
    "  begun_at INTEGER NOT NULL\n"
    ") STRICT, WITHOUT ROWID;\n"
    /* Release 0.2.0 counts the age of history by it; now its one row says when the day of the last
     * trimming began (journal.c). */
    "CREATE TABLE clock_spans (\n"
    "  span_id INTEGER PRIMARY KEY,\n"
    "  boot_id TEXT NOT NULL,\n"
    "  counted_from INTEGER NOT NULL,\n"
    "  wall_from INTEGER NOT NULL,\n"
    "  uptime_from INTEGER NOT NULL,\n"
    "  counted_until INTEGER NOT NULL\n"
    ") STRICT;\n"
    /* Disks that clients have attached to running VMs: one row per life of a drive_id. The columns
     * from kind to size_bytes are of the disk that was claimed. */
    "CREATE TABLE drive_mounts (\n"
    "  drive_ref INTEGER PRIMARY KEY AUTOINCREMENT,\n"
    "  drive_id TEXT NOT NULL,\n"
    "  sandbox_ref INTEGER NOT NULL REFERENCES sandboxes ON DELETE CASCADE,\n"
    "  host_path TEXT NOT NULL,\n"
    "  vm_path TEXT NOT NULL,\n"
    "  fs_type TEXT NOT NULL,\n"
    "  options TEXT NOT NULL,\n"
    "  writable INTEGER NOT NULL,\n"
    "  fsck TEXT NOT NULL,\n"
    "  fs_group INTEGER,\n"
    "  fs_group_policy TEXT NOT NULL,\n"
    "  bandwidth_size INTEGER,\n"
    "  bandwidth_refill_ms INTEGER,\n"
    "  bandwidth_burst INTEGER,\n"
    "  operations_size INTEGER,\n"
    "  operations_refill_ms INTEGER,\n"
    "  operations_burst INTEGER,\n"
    "  serial TEXT NOT NULL,\n"
    "  kind TEXT CHECK (kind IN ('block', 'file')),\n"
    "  major INTEGER,\n"
    "  minor INTEGER,\n"
    "  diskseq INTEGER,\n"
    "  file_device INTEGER,\n"
    "  inode INTEGER,\n"
    "  size_bytes INTEGER,\n"
    "  guest_device TEXT,\n"
    "  wanted INTEGER NOT NULL DEFAULT 1,\n"
    "  state TEXT NOT NULL,\n"
    "  status INTEGER NOT NULL DEFAULT 0,\n"
    "  message TEXT,\n"
    "  requested_at INTEGER NOT NULL,\n"
    "  ready_at INTEGER,\n"
    "  ended_at INTEGER\n"
    ") STRICT;\n"
    "CREATE UNIQUE INDEX drive_mounts_open ON drive_mounts (drive_id) WHERE ended_at IS NULL;\n"
    "CREATE UNIQUE INDEX drive_mounts_by_target ON drive_mounts (sandbox_ref, vm_path)"
    " WHERE ended_at IS NULL;\n"
    "CREATE INDEX drive_mounts_by_id ON drive_mounts (drive_id);\n"
    "CREATE INDEX drive_mounts_by_sandbox ON drive_mounts (sandbox_ref);\n"
    "CREATE INDEX drive_mounts_ended ON drive_mounts (ended_at) WHERE ended_at IS NOT NULL;\n",
    "CREATE INDEX drive_mounts_by_disk ON drive_mounts (major, minor) WHERE ended_at IS NULL;\n",
    /* 3. Of a sandbox: why some of its volumes may not be seen, and whether its VMM has outlived its shim; its rows in
     * sandbox_drives are then what it has open. Of a mapping: how often the VMM was found with less than it had taken,
     * while the device still had that. */
    "ALTER TABLE sandboxes ADD COLUMN problem TEXT;\n"
    "CREATE INDEX sandboxes_hiding ON sandboxes (sandbox_id) WHERE problem IS NOT NULL;\n"
    "ALTER TABLE sandboxes ADD COLUMN orphaned INTEGER NOT NULL DEFAULT 0;\n"
    "CREATE INDEX sandboxes_orphaned ON sandboxes (orphaned)"
    " WHERE orphaned = 1 AND gone_at IS NULL;\n"
    "ALTER TABLE mappings ADD COLUMN undone INTEGER NOT NULL DEFAULT 0;\n"
    /* Whether the guest has a file system on it that is to be grown. */
    "ALTER TABLE entries ADD COLUMN grows_file_system INTEGER NOT NULL DEFAULT 1;\n"
    /* Not "layout = 'none'": each statement with "layout = ?" would be prepared anew at each value. */
    "CREATE INDEX entries_without_directory ON entries (volume_id)"
    " WHERE layout >= 'none' AND gone = 0;\n"
    /* Which block device the container was given. */
    "ALTER TABLE sandbox_claims ADD COLUMN major INTEGER;\n"
    "ALTER TABLE sandbox_claims ADD COLUMN minor INTEGER;\n"
    /* Layout none is new. The other constraints are the same, faster: for a list of three or more SQLite fills a table whenever it checks a row. (Its
     * page on ALTER TABLE, section 7, has this way to change a constraint's text.) */
    "PRAGMA writable_schema = ON;\n"
    "UPDATE sqlite_schema SET sql = replace(sql, '(kind IN (''block'', ''file'', ''other''))',"
    " '(kind IN (''block'', ''file'') OR kind = ''other'')') WHERE name = 'devices';\n"
    "UPDATE sqlite_schema SET sql = replace(sql, '(''present'', ''invalid'', ''quarantined'', ''removed'')',"
    " '(''present'', ''invalid'') OR status IN (''quarantined'', ''removed'')') WHERE name = 'volumes';\n"
    "UPDATE sqlite_schema SET sql = replace(sql, '(layout IN (''kata'', ''crust''))',"
    " '(layout IN (''kata'', ''crust'') OR layout = ''none'')') WHERE name = 'entries';\n"
    "PRAGMA writable_schema = RESET;\n",
};

/* Containers that are to have the drive: an array of objects, as the API has them. */
const char schema_drive_containers[] =
    "ALTER TABLE drive_mounts ADD COLUMN containers TEXT NOT NULL DEFAULT '[]';\n";

/* TO ADD A COLUMN TO A VIEW: put it at the view's end. A migration drops all views and makes these.
 */
const char schema_views[] =
    "CREATE VIEW audit_volumes AS\n"
    "SELECT v.volume_id,\n"
    "  CASE WHEN EXISTS (SELECT 1 FROM entries o WHERE o.volume_id = v.volume_id AND o.gone = 0\n"
    "    AND o.layout <> e.layout) THEN 'both' ELSE e.layout END AS layout,\n"
    "  e.key, v.target_path, e.pv, e.pod_uid, e.driver, e.volume_handle, e.volume_type,\n"
    "  e.device, e.fs_type, e.options, e.metadata, v.status,\n"
    "  coalesce((SELECT o.problem FROM entries o WHERE o.volume_id = v.volume_id\n"
    "    AND o.problem IS NOT NULL LIMIT 1), e.remark, (SELECT o.remark FROM entries o\n"
    "    WHERE o.volume_id = v.volume_id AND o.remark IS NOT NULL LIMIT 1)) AS problem,\n"
    "  s.sandbox_id, d.size_bytes AS device_bytes, m.hypervisor_bytes, m.guest_bytes, v.state,\n"
    "  CASE WHEN k.mapping_id IS NULL THEN v.reason ELSE 'unstaged' END AS reason,\n"
    "  " TIME("v.state_since") " AS state_since,\n"
    "  " TIME("v.next_attempt_ms") " AS next_attempt_at,\n"
    "  " TIME("v.first_seen") " AS first_seen,\n"
    "  " TIME("v.last_changed") " AS last_changed,\n"
    "  " TIME("v.removed_at") " AS removed_at,\n"
    "  e.defer_fs_mount,\n"
    "  coalesce(CASE v.reason WHEN 'bypassed' THEN\n"
    "    (SELECT 'a container of sandbox ' || s.sandbox_id || ' mounts ' || c.path\n"
    "      FROM sandbox_claims c JOIN sandboxes s ON s.sandbox_ref = c.sandbox_ref\n"
    "      WHERE " CLAIMS_WITHIN("v.target_path", "e.subpaths") " LIMIT 1)\n"
    "  WHEN 'entries_disagree' THEN (SELECT group_concat(o.layout || '/' || o.key || ' names '\n"
    "    || o.device, ', ') FROM entries o WHERE o.volume_id = v.volume_id AND o.gone = 0)\n"
    "  END, CASE WHEN k.mapping_id IS NOT NULL THEN 'sandbox ' || s.sandbox_id || ' still has it, in process ' || s.vmm_pid\n"
    "  END, v.evidence) AS evidence,\n"
    "  " V_IS_STALLED " AS stalled,\n"
    "  g.used_bytes, g.available_bytes, g.condition, g.message AS condition_message,\n"
    "  " TIME("g.read_at") " AS stats_at,\n"
    "  CASE WHEN v.removed_at IS NULL THEN v.resizable END AS resizable,\n"
    "  CASE WHEN v.removed_at IS NULL THEN v.resizable_reason END AS resizable_reason,\n"
    "  " POD_NAMESPACE " AS pod_namespace, s.pod_name, " E_CLAIM " AS claim,\n"
    "  " E_KIND " AS kind\n"
    "FROM volumes v\n"
    "LEFT JOIN entries e ON e.entry_id = v.entry_id\n"
    "LEFT JOIN devices d ON d.device_id = v.device_id\n"
    "LEFT JOIN mappings m ON m.volume_id = v.volume_id AND m.until IS NULL\n"
    "LEFT JOIN guest_stats g ON g.mapping_id = m.mapping_id\n"
    "LEFT JOIN mappings k ON k.mapping_id = " V_UNSTAGED_MAPPING "\n"
    "LEFT JOIN sandboxes s ON s.sandbox_ref = coalesce(m.sandbox_ref, k.sandbox_ref,\n"
    "  (SELECT CASE WHEN min(a.sandbox_ref) = max(a.sandbox_ref) THEN min(a.sandbox_ref) END\n"
    "    FROM sandboxes a WHERE a.sandbox_ref IN (SELECT l.sandbox_ref FROM entries o\n"
    "      JOIN entry_sandboxes n ON n.entry_id = o.entry_id\n"
    "      JOIN sandboxes l ON l.sandbox_id = n.sandbox_id AND l.gone_at IS NULL\n"
    "      WHERE o.volume_id = v.volume_id AND o.gone = 0 UNION SELECT c.sandbox_ref\n"
    "      FROM sandbox_claims c WHERE c.path = v.target_path)));\n"

    "CREATE VIEW audit_sandboxes AS\n"
    "SELECT sandbox_id, runtime, hypervisor, vmm_pid, control_socket, agent_address,\n"
    "  pod_namespace, pod_name, CASE WHEN gone_at IS NOT NULL THEN 'gone' WHEN orphaned\n"
    "    THEN 'orphaned' ELSE 'alive' END AS status,\n"
    "  boot_id, " TIME("first_seen") " AS first_seen, " TIME("gone_at") " AS gone_at, problem\n"
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
    "  l.remedy, " PV("v") "\n"
    "FROM volumes v\n"
    "JOIN layers l ON l.device_id = v.device_id\n"
    "JOIN devices d ON d.device_id = l.layer_id\n"
    "WHERE v.removed_at IS NULL;\n"

    "CREATE VIEW audit_mappings AS\n"
    "SELECT m.volume_id, v.target_path, s.sandbox_id, d.name AS device, m.drive_id,\n"
    "  m.guest_path, m.source, " TIME("m.since") " AS since, " TIME("m.until") " AS until,\n"
    "  " PV("v") ",\n"
    "  CASE WHEN m.list > 0 THEN 'yes' WHEN m.list < 0 THEN 'no' ELSE 'unknown' END AS attached\n"
    "FROM mappings m\n"
    "JOIN volumes v ON v.volume_id = m.volume_id\n"
    "JOIN sandboxes s ON s.sandbox_ref = m.sandbox_ref\n"
    "LEFT JOIN devices d ON d.device_id = m.device_id;\n"

    "CREATE VIEW audit_resizes AS\n"
    "SELECT r.resize_id, r.volume_id, v.target_path, r.sandbox_id, r.device, r.from_bytes,\n"
    "  r.to_bytes, r.state, r.reason, r.error, r.attempts,\n"
    "  " TIME("r.detected_at") " AS detected_at, " TIME("r.hypervisor_at") " AS hypervisor_at,\n"
    "  " TIME("r.guest_at") " AS guest_at, " TIME("r.finished_at") " AS finished_at,\n"
    "  " PV("v") "\n"
    "FROM resizes r JOIN volumes v ON v.volume_id = r.volume_id;\n"

    "CREATE VIEW audit_cleanups AS\n"
    "SELECT cleanup_id, volume_id, key, target_path, decision, reason, evidence, mount_info,\n"
    "  mount_info_sha256, " TIME("at") " AS at, " PV_OF("cleanups.volume_id") "\n"
    "FROM cleanups WHERE decision <> 'intended';\n"

    "CREATE VIEW audit_drives AS\n"
    "SELECT d.drive_id, s.sandbox_id, d.host_path, d.vm_path, d.fs_type, d.options, d.writable,\n"
    "  CASE d.kind WHEN 'block' THEN d.major END AS major,\n"
    "  CASE d.kind WHEN 'block' THEN d.minor END AS minor,\n"
    "  CASE d.kind WHEN 'file' THEN d.inode END AS inode,\n"
    "  d.size_bytes, d.serial, d.guest_device, d.fsck, d.fs_group, d.fs_group_policy,\n"
    "  d.bandwidth_size, d.bandwidth_refill_ms, d.bandwidth_burst,\n"
    "  d.operations_size, d.operations_refill_ms, d.operations_burst,\n"
    "  d.wanted, d.state, d.message, " TIME("d.requested_at") " AS requested_at,\n"
    "  " TIME("d.ready_at") " AS ready_at, " TIME("d.ended_at") " AS ended_at,\n"
    "  d.containers\n"
    "FROM drive_mounts d JOIN sandboxes s ON s.sandbox_ref = d.sandbox_ref;\n"

    "CREATE VIEW audit_journal AS\n"
    "SELECT seq, " TIME("at") " AS at, kind, volume_id, sandbox_id, device, detail,\n"
    "  " PV_OF("journal.volume_id") "\n"
    "FROM journal;\n";
/* clang-format on */
