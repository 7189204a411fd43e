-- A small database as release 0.1.0 writes it, dumped with sqlite3; the values with 'hunter2' stand for secrets.
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
PRAGMA application_id = 1129468756;
PRAGMA user_version = 1;
CREATE TABLE meta (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  boot_id TEXT NOT NULL,
  checkpoints INTEGER NOT NULL DEFAULT 0,
  live_volumes INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO meta VALUES(1,'2594e6f9-4b54-4648-bc90-224bdae53b94',0,2);
CREATE TABLE devices (
  device_id INTEGER PRIMARY KEY AUTOINCREMENT,
  boot_id TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('block', 'file', 'other')),
  name TEXT NOT NULL,
  major INTEGER NOT NULL,
  minor INTEGER NOT NULL,
  diskseq INTEGER NOT NULL,
  file_device INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  size_bytes INTEGER NOT NULL,
  first_size INTEGER NOT NULL,
  size_since_ns INTEGER NOT NULL,
  announced INTEGER NOT NULL DEFAULT 0,
  rescanned_ns INTEGER,
  first_seen INTEGER NOT NULL,
  last_changed INTEGER NOT NULL
) STRICT;
CREATE TABLE layers (
  device_id INTEGER NOT NULL REFERENCES devices ON DELETE CASCADE,
  position INTEGER NOT NULL,
  layer_id INTEGER NOT NULL REFERENCES devices,
  above INTEGER NOT NULL,
  kind TEXT NOT NULL,
  label TEXT,
  base_bytes INTEGER NOT NULL,
  above_bytes INTEGER NOT NULL,
  state INTEGER NOT NULL,
  remedy TEXT,
  PRIMARY KEY (device_id, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE volumes (
  volume_id INTEGER PRIMARY KEY AUTOINCREMENT,
  target_path TEXT,
  path_sha256 TEXT,
  entry_id INTEGER,
  status TEXT NOT NULL CHECK (status IN ('present', 'invalid', 'quarantined', 'removed')),
  device_id INTEGER REFERENCES devices,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  state_since INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  next_attempt_ns INTEGER,
  next_attempt_ms INTEGER,
  first_seen INTEGER NOT NULL,
  last_changed INTEGER NOT NULL,
  removed_at INTEGER
) STRICT;
INSERT INTO volumes VALUES(1,'/var/lib/kubelet/pods/22222222-2222-2222-2222-222222222222/volumes/kubernetes.io~csi/pv-secret/mount','8ef46c092557a166d174cae467edecd5e7f64194df0e0641dadeadf25e6d3dc4',1,'present',NULL,'unbound','none',1795351522258,0,NULL,NULL,1795351522253,1795351522253,NULL);
INSERT INTO volumes VALUES(2,'/var/lib/kubelet/pods/11111111-1111-1111-1111-111111111111/volumes/kubernetes.io~csi/pv-plain/mount','53bfd2ff64df9cfa004bc7f4dd3380126af281e10707e8000bda4c671184800c',2,'present',NULL,'unbound','none',1795351522254,0,NULL,NULL,1795351522253,1795351522253,NULL);
INSERT INTO volumes VALUES(3,'/var/lib/kubelet/pods/3/volumes/kubernetes.io~csi/pv-gone/mount',NULL,3,'removed',NULL,'unbound','none',1795351522000,0,NULL,NULL,1795351522000,1795351523000,1795351523000);
CREATE TABLE entries (
  entry_id INTEGER PRIMARY KEY,
  volume_id INTEGER NOT NULL REFERENCES volumes ON DELETE CASCADE,
  layout TEXT NOT NULL CHECK (layout IN ('kata', 'crust')),
  key TEXT NOT NULL,
  gone INTEGER NOT NULL DEFAULT 0,
  problem TEXT,
  directory_device INTEGER,
  directory_inode INTEGER,
  directory_born_ns INTEGER,
  mount_info_sha256 TEXT,
  volume_type TEXT,
  device TEXT,
  fs_type TEXT,
  options TEXT,
  metadata TEXT,
  policy INTEGER NOT NULL DEFAULT 0,
  pv TEXT,
  pod_uid TEXT,
  driver TEXT,
  volume_handle TEXT,
  stale_reason TEXT,
  stale_fingerprint TEXT,
  stale_since_ns INTEGER,
  restored TEXT,
  defer_fs_mount INTEGER,
  subpaths TEXT,
  remark TEXT
) STRICT;
INSERT INTO entries VALUES(1,1,'kata','L3Zhci9saWIva3ViZWxldC9wb2RzLzIyMjIyMjIyLTIyMjItMjIyMi0yMjIyLTIyMjIyMjIyMjIyMi92b2x1bWVzL2t1YmVybmV0ZXMuaW9-Y3NpL3B2LXNlY3JldC9tb3VudA==',0,NULL,65024,10002753,1795351522154047914,'811c4e7497a794d4c9790402018fa645bb0ae47d1f2d56e027d1937ec5a34c7d','block','/dev/loop-none','cifs','["rw","username=joe,password=hunter2-option","credentials=/etc/hunter2-file","encryptionKey=hunter2-key","domain=x"]','{"S3-Password":"[redacted]","size":"1"}',0,'pv-secret','22222222-2222-2222-2222-222222222222',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'/var/lib/kubelet/pods/22222222-2222-2222-2222-222222222222/volume-subpaths/pv-secret',NULL);
INSERT INTO entries VALUES(2,2,'kata','L3Zhci9saWIva3ViZWxldC9wb2RzLzExMTExMTExLTExMTEtMTExMS0xMTExLTExMTExMTExMTExMS92b2x1bWVzL2t1YmVybmV0ZXMuaW9-Y3NpL3B2LXBsYWluL21vdW50',0,NULL,65024,10002721,1795351522154047914,'2db8e3280b526a4f8b0b30eff3a6baf2b547d7c8ca3777cbbe509a64af86de14','block','/dev/loop-none','ext4','["noatime"]','{"fsGroup":"100"}',0,'pv-plain','11111111-1111-1111-1111-111111111111',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'/var/lib/kubelet/pods/11111111-1111-1111-1111-111111111111/volume-subpaths/pv-plain',NULL);
INSERT INTO entries VALUES(3,3,'crust','gone',1,NULL,NULL,NULL,NULL,NULL,'block','/dev/sdx','cifs','["ro","pass=hunter2-gone"]','{}',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE entry_sandboxes (
  entry_id INTEGER NOT NULL REFERENCES entries ON DELETE CASCADE,
  sandbox_id TEXT NOT NULL,
  stale_since_ns INTEGER,
  restored INTEGER NOT NULL DEFAULT 0,
  published INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (entry_id, sandbox_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE sandboxes (
  sandbox_ref INTEGER PRIMARY KEY AUTOINCREMENT,
  boot_id TEXT NOT NULL,
  sandbox_id TEXT NOT NULL,
  runtime TEXT NOT NULL,
  hypervisor TEXT NOT NULL,
  vmm_pid INTEGER,
  vmm_start_ns INTEGER,
  control_socket TEXT,
  agent_address TEXT,
  pod_namespace TEXT,
  pod_name TEXT,
  vmm_version TEXT,
  companion_ability TEXT,
  agent_ability TEXT,
  shim_ability TEXT,
  exit_seen INTEGER NOT NULL DEFAULT 0,
  first_seen INTEGER NOT NULL,
  gone_at INTEGER
) STRICT;
CREATE TABLE sandbox_drives (
  sandbox_ref INTEGER NOT NULL REFERENCES sandboxes ON DELETE CASCADE,
  position INTEGER NOT NULL,
  mount_source TEXT,
  file TEXT,
  major INTEGER NOT NULL,
  minor INTEGER NOT NULL,
  drive_id TEXT,
  guest_path TEXT,
  PRIMARY KEY (sandbox_ref, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE sandbox_claims (
  sandbox_ref INTEGER NOT NULL REFERENCES sandboxes ON DELETE CASCADE,
  path TEXT NOT NULL,
  source TEXT NOT NULL,
  guest_path TEXT,
  PRIMARY KEY (sandbox_ref, path)
) STRICT, WITHOUT ROWID;
CREATE TABLE mappings (
  mapping_id INTEGER PRIMARY KEY AUTOINCREMENT,
  volume_id INTEGER NOT NULL REFERENCES volumes,
  sandbox_ref INTEGER NOT NULL REFERENCES sandboxes,
  device_id INTEGER REFERENCES devices,
  drive_id TEXT,
  guest_path TEXT,
  source TEXT NOT NULL,
  first_bytes INTEGER,
  largest_bytes INTEGER,
  hypervisor_bytes INTEGER,
  guest_bytes INTEGER,
  guest_synced_bytes INTEGER,
  hypervisor_reason TEXT,
  guest_reason TEXT,
  since INTEGER NOT NULL,
  until INTEGER
) STRICT;
CREATE TABLE resizes (
  resize_id INTEGER PRIMARY KEY AUTOINCREMENT,
  volume_id INTEGER NOT NULL REFERENCES volumes,
  sandbox_id TEXT,
  device TEXT,
  from_bytes INTEGER,
  to_bytes INTEGER NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  error TEXT,
  attempts INTEGER NOT NULL DEFAULT 0,
  detected_at INTEGER NOT NULL,
  hypervisor_at INTEGER,
  guest_at INTEGER,
  finished_at INTEGER
) STRICT;
INSERT INTO resizes VALUES(1,2,'sandbox-1','/dev/loop0',1024,4096,'in_sync','none',NULL,1,1795351522000,NULL,NULL,1795351523000);
CREATE TABLE cleanups (
  cleanup_id INTEGER PRIMARY KEY AUTOINCREMENT,
  volume_id INTEGER,
  key TEXT NOT NULL,
  target_path TEXT,
  decision TEXT NOT NULL CHECK (decision IN ('intended', 'kept', 'removed', 'put-back', 'restored', 'failed')),
  reason TEXT NOT NULL,
  evidence TEXT,
  mount_info TEXT,
  mount_info_sha256 TEXT,
  at INTEGER NOT NULL
) STRICT;
INSERT INTO cleanups VALUES(1,3,'gone','/var/lib/kubelet/pods/3/volumes/kubernetes.io~csi/pv-gone/mount','removed','pod_gone','{}','{"volume-type":"block","device":"/dev/sdx","fstype":"cifs","metadata":{},"options":["ro","pass=hunter2-gone"]}','aa',1795351523000);
CREATE TABLE trash (
  cleanup_id INTEGER PRIMARY KEY REFERENCES cleanups,
  volume_id INTEGER NOT NULL,
  layout TEXT NOT NULL CHECK (layout IN ('kata', 'crust')),
  key TEXT NOT NULL,
  file TEXT,
  directory TEXT NOT NULL,
  name TEXT NOT NULL,
  step TEXT NOT NULL
 CHECK (step IN ('intended', 'moved', 'kept', 'restoring', 'deleting')),
  fingerprint TEXT NOT NULL,
  directory_device INTEGER,
  directory_inode INTEGER,
  directory_born_ns INTEGER,
  since_ns INTEGER NOT NULL
) STRICT;
INSERT INTO trash VALUES(1,3,'crust','gone',NULL,'/run/crust','gone.trash','kept','ff',NULL,NULL,NULL,5);
CREATE TABLE journal (
  seq INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  kind TEXT NOT NULL,
  volume_id INTEGER,
  sandbox_id TEXT,
  device TEXT,
  detail TEXT
) STRICT;
INSERT INTO journal VALUES(1,1795351522247,'store_opened',NULL,NULL,NULL,'{"boot_id":"2594e6f9-4b54-4648-bc90-224bdae53b94"}');
INSERT INTO journal VALUES(2,1795351522253,'volume_added',1,NULL,NULL,'{"target_path":"/var/lib/kubelet/pods/22222222-2222-2222-2222-222222222222/volumes/kubernetes.io~csi/pv-secret/mount","layout":"kata","key":"L3Zhci9saWIva3ViZWxldC9wb2RzLzIyMjIyMjIyLTIyMjItMjIyMi0yMjIyLTIyMjIyMjIyMjIyMi92b2x1bWVzL2t1YmVybmV0ZXMuaW9-Y3NpL3B2LXNlY3JldC9tb3VudA=="}');
INSERT INTO journal VALUES(3,1795351522253,'volume_added',2,NULL,NULL,'{"target_path":"/var/lib/kubelet/pods/11111111-1111-1111-1111-111111111111/volumes/kubernetes.io~csi/pv-plain/mount","layout":"kata","key":"L3Zhci9saWIva3ViZWxldC9wb2RzLzExMTExMTExLTExMTEtMTExMS0xMTExLTExMTExMTExMTExMS92b2x1bWVzL2t1YmVybmV0ZXMuaW9-Y3NpL3B2LXBsYWluL21vdW50"}');
INSERT INTO journal VALUES(4,1795351522254,'state_changed',2,NULL,NULL,'{"from":"unknown/none","to":"unbound/none"}');
INSERT INTO journal VALUES(5,1795351522258,'state_changed',1,NULL,NULL,'{"from":"unknown/none","to":"unbound/none"}');
INSERT INTO journal VALUES(6,1795351523000,'metadata_removed',3,NULL,NULL,'{"reason":"pod_gone"}');
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('volumes',3);
INSERT INTO sqlite_sequence VALUES('cleanups',1);
INSERT INTO sqlite_sequence VALUES('resizes',1);
CREATE UNIQUE INDEX devices_by_number ON devices (major, minor, diskseq, boot_id) WHERE kind = 'block';
CREATE UNIQUE INDEX devices_by_inode ON devices (inode, file_device, boot_id) WHERE kind <> 'block';
CREATE INDEX devices_by_age ON devices (last_changed);
CREATE INDEX layers_by_layer ON layers (layer_id);
CREATE UNIQUE INDEX volumes_by_path ON volumes (target_path) WHERE removed_at IS NULL;
CREATE INDEX volumes_by_hash ON volumes (path_sha256) WHERE path_sha256 IS NOT NULL;
CREATE INDEX volumes_hidden ON volumes (volume_id) WHERE target_path IS NULL AND removed_at IS NULL;
CREATE INDEX volumes_blocked ON volumes (volume_id) WHERE state = 'blocked';
CREATE INDEX volumes_by_device ON volumes (device_id);
CREATE INDEX volumes_waiting ON volumes (next_attempt_ns) WHERE next_attempt_ns IS NOT NULL;
CREATE INDEX volumes_removed ON volumes (removed_at) WHERE removed_at IS NOT NULL;
CREATE UNIQUE INDEX entries_by_name ON entries (key, layout) WHERE gone = 0;
CREATE INDEX entries_by_volume ON entries (volume_id);
CREATE INDEX entries_of_kubelet ON entries (layout) WHERE gone = 0 AND pv IS NOT NULL;
CREATE INDEX entries_by_subpaths ON entries (subpaths) WHERE subpaths IS NOT NULL;
CREATE INDEX entry_sandboxes_by_sandbox ON entry_sandboxes (sandbox_id);
CREATE UNIQUE INDEX sandboxes_alive ON sandboxes (sandbox_id) WHERE gone_at IS NULL;
CREATE INDEX sandboxes_by_id ON sandboxes (sandbox_id);
CREATE INDEX sandboxes_gone ON sandboxes (gone_at) WHERE gone_at IS NOT NULL;
CREATE INDEX sandbox_claims_by_path ON sandbox_claims (path);
CREATE UNIQUE INDEX mappings_open ON mappings (volume_id) WHERE until IS NULL;
CREATE INDEX mappings_by_volume ON mappings (volume_id);
CREATE INDEX mappings_by_sandbox ON mappings (sandbox_ref);
CREATE INDEX mappings_by_device ON mappings (device_id);
CREATE INDEX mappings_closed ON mappings (until) WHERE until IS NOT NULL;
CREATE UNIQUE INDEX resizes_open ON resizes (volume_id) WHERE finished_at IS NULL;
CREATE INDEX resizes_by_volume ON resizes (volume_id);
CREATE INDEX resizes_finished ON resizes (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX cleanups_by_age ON cleanups (at);
CREATE INDEX cleanups_by_volume ON cleanups (volume_id);
CREATE INDEX trash_by_volume ON trash (volume_id);
CREATE INDEX trash_by_key ON trash (key);
CREATE INDEX trash_by_step ON trash (step, since_ns);
CREATE INDEX journal_by_volume ON journal (volume_id) WHERE volume_id IS NOT NULL;
CREATE VIEW audit_volumes AS
SELECT v.volume_id,
  CASE WHEN EXISTS (SELECT 1 FROM entries o WHERE o.volume_id = v.volume_id AND o.gone = 0
    AND o.layout <> e.layout) THEN 'both' ELSE e.layout END AS layout,
  e.key, v.target_path, e.pv, e.pod_uid, e.driver, e.volume_handle, e.volume_type,
  e.device, e.fs_type, e.options, e.metadata, v.status,
  coalesce((SELECT o.problem FROM entries o WHERE o.volume_id = v.volume_id
    AND o.problem IS NOT NULL LIMIT 1), e.remark) AS problem,
  CASE WHEN m.sandbox_ref IS NOT NULL
    THEN (SELECT s.sandbox_id FROM sandboxes s WHERE s.sandbox_ref = m.sandbox_ref)
    ELSE (SELECT CASE WHEN min(s.sandbox_id) = max(s.sandbox_id) THEN min(s.sandbox_id) END
      FROM sandboxes s WHERE s.sandbox_ref IN (SELECT l.sandbox_ref FROM entries o
        JOIN entry_sandboxes n ON n.entry_id = o.entry_id
        JOIN sandboxes l ON l.sandbox_id = n.sandbox_id AND l.gone_at IS NULL
        WHERE o.volume_id = v.volume_id AND o.gone = 0 UNION SELECT c.sandbox_ref
        FROM sandbox_claims c WHERE c.path = v.target_path)) END AS sandbox_id,
  d.size_bytes AS device_bytes, m.hypervisor_bytes, m.guest_bytes, v.state, v.reason,
  strftime('%Y-%m-%dT%H:%M:%fZ', v.state_since / 1000.0, 'unixepoch') AS state_since,
  strftime('%Y-%m-%dT%H:%M:%fZ', v.next_attempt_ms / 1000.0, 'unixepoch') AS next_attempt_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', v.first_seen / 1000.0, 'unixepoch') AS first_seen,
  strftime('%Y-%m-%dT%H:%M:%fZ', v.last_changed / 1000.0, 'unixepoch') AS last_changed,
  strftime('%Y-%m-%dT%H:%M:%fZ', v.removed_at / 1000.0, 'unixepoch') AS removed_at,
  e.defer_fs_mount,
  CASE v.reason WHEN 'bypassed' THEN
    (SELECT 'a container of sandbox ' || s.sandbox_id || ' mounts ' || c.path
      FROM sandbox_claims c JOIN sandboxes s ON s.sandbox_ref = c.sandbox_ref
      WHERE ((c.path > v.target_path || '/' AND c.path < v.target_path || '0') OR (c.path > e.subpaths || '/' AND c.path < e.subpaths || '0')) AND NOT EXISTS (SELECT 1 FROM volumes w WHERE w.target_path = c.path AND w.removed_at IS NULL) LIMIT 1)
  WHEN 'entries_disagree' THEN (SELECT group_concat(o.layout || '/' || o.key || ' names '
    || o.device, ', ') FROM entries o WHERE o.volume_id = v.volume_id AND o.gone = 0)
  END AS evidence
FROM volumes v
LEFT JOIN entries e ON e.entry_id = v.entry_id
LEFT JOIN devices d ON d.device_id = v.device_id
LEFT JOIN mappings m ON m.volume_id = v.volume_id AND m.until IS NULL;
CREATE VIEW audit_sandboxes AS
SELECT sandbox_id, runtime, hypervisor, vmm_pid, control_socket, agent_address,
  pod_namespace, pod_name, CASE WHEN gone_at IS NULL THEN 'alive' ELSE 'gone' END AS status,
  boot_id, strftime('%Y-%m-%dT%H:%M:%fZ', first_seen / 1000.0, 'unixepoch') AS first_seen, strftime('%Y-%m-%dT%H:%M:%fZ', gone_at / 1000.0, 'unixepoch') AS gone_at
FROM sandboxes;
CREATE VIEW audit_devices AS
SELECT name AS device, CASE kind WHEN 'block' THEN major END AS major,
  CASE kind WHEN 'block' THEN minor END AS minor, nullif(diskseq, 0) AS diskseq,
  CASE kind WHEN 'block' THEN NULL ELSE inode END AS inode, size_bytes,
  strftime('%Y-%m-%dT%H:%M:%fZ', first_seen / 1000.0, 'unixepoch') AS first_seen, strftime('%Y-%m-%dT%H:%M:%fZ', last_changed / 1000.0, 'unixepoch') AS last_changed
FROM devices;
CREATE VIEW audit_layers AS
SELECT v.volume_id, l.position, d.name AS device, l.kind, l.label AS name, d.size_bytes,
  CASE l.state WHEN 0 THEN 'in_step' WHEN 1 THEN 'pending' ELSE 'stale' END AS state,
  l.remedy
FROM volumes v
JOIN layers l ON l.device_id = v.device_id
JOIN devices d ON d.device_id = l.layer_id
WHERE v.removed_at IS NULL;
CREATE VIEW audit_mappings AS
SELECT m.volume_id, v.target_path, s.sandbox_id, d.name AS device, m.drive_id,
  m.guest_path, m.source, strftime('%Y-%m-%dT%H:%M:%fZ', m.since / 1000.0, 'unixepoch') AS since, strftime('%Y-%m-%dT%H:%M:%fZ', m.until / 1000.0, 'unixepoch') AS until
FROM mappings m
JOIN volumes v ON v.volume_id = m.volume_id
JOIN sandboxes s ON s.sandbox_ref = m.sandbox_ref
LEFT JOIN devices d ON d.device_id = m.device_id;
CREATE VIEW audit_resizes AS
SELECT r.resize_id, r.volume_id, v.target_path, r.sandbox_id, r.device, r.from_bytes,
  r.to_bytes, r.state, r.reason, r.error, r.attempts,
  strftime('%Y-%m-%dT%H:%M:%fZ', r.detected_at / 1000.0, 'unixepoch') AS detected_at, strftime('%Y-%m-%dT%H:%M:%fZ', r.hypervisor_at / 1000.0, 'unixepoch') AS hypervisor_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', r.guest_at / 1000.0, 'unixepoch') AS guest_at, strftime('%Y-%m-%dT%H:%M:%fZ', r.finished_at / 1000.0, 'unixepoch') AS finished_at
FROM resizes r JOIN volumes v ON v.volume_id = r.volume_id;
CREATE VIEW audit_cleanups AS
SELECT cleanup_id, volume_id, key, target_path, decision, reason, evidence, mount_info,
  mount_info_sha256, strftime('%Y-%m-%dT%H:%M:%fZ', at / 1000.0, 'unixepoch') AS at
FROM cleanups WHERE decision <> 'intended';
CREATE VIEW audit_journal AS
SELECT seq, strftime('%Y-%m-%dT%H:%M:%fZ', at / 1000.0, 'unixepoch') AS at, kind, volume_id, sandbox_id, device, detail
FROM journal;
COMMIT;
PRAGMA journal_mode = WAL;
