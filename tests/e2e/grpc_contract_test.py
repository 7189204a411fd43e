# SPDX-License-Identifier: Apache-2.0
"""What clients that have their own copy of the messages rely on: names, numbers and types. They are
compared with this table, not with what crustd was built from.
"""


from grpc_client import SECONDS, GrpcTest, grpc

STATS = {"usage": (1, "repeated VolumeUsage"), "volume_condition": (2, "VolumeCondition")}
USAGE = {"available": (1, "int64"), "total": (2, "int64"), "used": (3, "int64"), "unit": (4, "VolumeUsage.Unit")}
CONDITION = {"abnormal": (1, "bool"), "message": (2, "string")}
CAPACITY = {"capacity_bytes": (1, "int64")}
UNITS = {"UNKNOWN": 0, "BYTES": 1, "INODES": 2}

BUCKET = {"size": (1, "uint64"), "refill_time_ms": (2, "uint64"), "one_time_burst": (3, "uint64")}
DRIVE = {"drive": (1, "Drive")}

MESSAGES = {
    "crust_runtime": {
        "RuntimeStageVolumeRequest": {
            "volume_type": (1, "VolumeType"), "volume_target_path": (2, "string"),
            "volume_backing_path": (3, "string"), "fs_type": (4, "string"),
            "mount_flags": (5, "repeated string"), "volume_supplemental_group": (6, "string"),
            "volume_supplemental_group_change_policy": (7, "VolumeGroupChangePolicy")},
        "RuntimeStageVolumeResponse": {},
        "VolumeType": {"type": (1, "VolumeType.Type")},
        "VolumeGroupChangePolicy": {"policy": (1, "VolumeGroupChangePolicy.Policy")},
        "RuntimeUnstageVolumeRequest": {"volume_target_path": (1, "string")},
        "RuntimeUnstageVolumeResponse": {},
        "RuntimeGetVolumeStatsRequest": {"volume_target_path": (1, "string")},
        "RuntimeGetVolumeStatsResponse": STATS,
        "VolumeUsage": USAGE,
        "VolumeCondition": CONDITION,
        "RuntimeExpandVolumeRequest": {"volume_target_path": (1, "string"),
                                       "capacity_range": (2, "CapacityRange")},
        "CapacityRange": {"required_bytes": (1, "int64"), "limit_bytes": (2, "int64")},
        "RuntimeExpandVolumeResponse": CAPACITY,
    },
    "crust_management": {
        "RuntimeGetCapabilitiesRequest": {},
        "RuntimeGetCapabilitiesResponse": {"capabilities": (1, "repeated RuntimeCapability")},
        "RuntimeCapability": {"rpc": (1, "RuntimeCapability.RPC")},
        "RuntimeCapability.RPC": {"type": (1, "RuntimeCapability.RPC.Type")},
        "RuntimeGetSupportedFileSystemsRequest": {},
        "RuntimeGetSupportedFileSystemsResponse": {"file_systems": (1, "repeated string")},
        "RuntimePublishVolumeRequest": {
            "sandbox_id": (1, "string"), "host_volume_id": (2, "string"),
            "host_target_path": (3, "string"), "file_system": (4, "string"),
            "mount_options": (5, "repeated string"), "fsgroup_gid": (6, "int32"),
            "fsgroup_policy": (7, "string")},
        "RuntimePublishVolumeResponse": {},
        "RuntimeGetVolumeStatsRequest": {"sandbox_id": (1, "string"),
                                         "host_volume_id": (2, "string")},
        "RuntimeGetVolumeStatsResponse": STATS,
        "VolumeUsage": USAGE,
        "VolumeCondition": CONDITION,
        "RuntimeExpandVolumeRequest": {"sandbox_id": (1, "string"), "host_volume_id": (2, "string"),
                                       "required_bytes": (3, "int64")},
        "RuntimeExpandVolumeResponse": CAPACITY,
    },
    "crust_drive_v1": {
        "AttachDriveRequest": {
            "drive_id": (1, "string"), "sandbox_id": (2, "string"), "host_path": (3, "string"),
            "vm_path": (4, "string"), "filesystem_type": (5, "string"),
            "options": (6, "repeated string"), "rate_limiter": (7, "RateLimiter"),
            "is_writable": (8, "bool"), "fsck": (9, "AttachDriveRequest.Fsck"),
            "fs_group": (10, "uint32"),
            "fs_group_change_policy": (11, "AttachDriveRequest.FsGroupChangePolicy"),
            "containers": (12, "repeated Container")},
        "Container": {"container_id": (1, "string"), "path": (2, "string"),
                      "sub_path": (3, "string"), "read_only": (4, "bool")},
        "RateLimiter": {"bandwidth": (1, "TokenBucket"), "ops": (2, "TokenBucket")},
        "TokenBucket": BUCKET,
        "AttachDriveResponse": DRIVE,
        "DetachDriveRequest": {"drive_id": (1, "string")},
        "DetachDriveResponse": {},
        "UpdateDriveLimitsRequest": {"drive_id": (1, "string"), "rate_limiter": (2, "RateLimiter")},
        "UpdateDriveLimitsResponse": DRIVE,
        "GetDriveRequest": {"drive_id": (1, "string")},
        "GetDriveResponse": DRIVE,
        "ListDrivesRequest": {"sandbox_id": (1, "string")},
        "ListDrivesResponse": {"drives": (1, "repeated Drive")},
        "Drive": {
            "drive_id": (1, "string"), "sandbox_id": (2, "string"), "host_path": (3, "string"),
            "vm_path": (4, "string"), "filesystem_type": (5, "string"),
            "options": (6, "repeated string"), "is_writable": (7, "bool"),
            "rate_limiter": (8, "RateLimiter"), "serial": (9, "string"),
            "guest_device": (10, "string"), "size_bytes": (11, "uint64"),
            "is_wanted": (12, "bool"), "state": (13, "Drive.State"), "status": (14, "int32"),
            "message": (15, "string"),
            "containers": (16, "repeated Container")},
    },
    "health": {
        "HealthCheckRequest": {"service": (1, "string")},
        "HealthCheckResponse": {"status": (1, "HealthCheckResponse.ServingStatus")},
    },
}

ENUMS = {
    "crust_runtime": {
        "VolumeType.Type": {"UNKNOWN": 0, "BLOCK": 1, "NETWORK": 2},
        "VolumeGroupChangePolicy.Policy": {"UNKNOWN": 0, "ALWAYS": 1, "ON_ROOT_MISMATCH": 2},
        "VolumeUsage.Unit": UNITS,
    },
    "crust_management": {
        "RuntimeCapability.RPC.Type": {
            "UNKNOWN": 0, "FS_GROUP_CHANGE_POLICY_ALWAYS": 2,
            "FS_GROUP_CHANGE_POLICY_ROOT_MISMATCH": 3, "SUBPATH": 4, "SELINUX_RELABEL": 5,
            "SELINUX_RELABEL_ON_MOUNT": 6, "VOLUME_STATS": 7, "VOLUME_RESIZE": 8},
        "VolumeUsage.Unit": UNITS,
    },
    "crust_drive_v1": {
        "AttachDriveRequest.Fsck": {"NONE": 0, "PREEN": 1},
        "AttachDriveRequest.FsGroupChangePolicy": {"ALWAYS": 0, "ON_ROOT_MISMATCH": 1},
        "Drive.State": {
            "UNKNOWN": 0, "REQUESTED": 1, "CLAIMED": 2, "ATTACHED": 3, "SEEN": 4, "MOUNTED": 5,
            "READY": 6, "UNMOUNTING": 7, "UNMOUNTED": 8, "REMOVING": 9, "REMOVED": 10,
            "FAILED": 11, "LOST": 12},
    },
    "health": {
        "HealthCheckResponse.ServingStatus": {
            "UNKNOWN": 0, "SERVING": 1, "NOT_SERVING": 2, "SERVICE_UNKNOWN": 3},
    },
}

SERVICES = {
    "crust.v1.Runtime": ("RuntimeStageVolume", "RuntimeUnstageVolume", "RuntimeGetVolumeStats",
                         "RuntimeExpandVolume"),
    "crust.management.v1.RuntimeAssistedStorageManagement": (
        "RuntimeGetCapabilities", "RuntimeGetSupportedFileSystems", "RuntimePublishVolume",
        "RuntimeGetVolumeStats", "RuntimeExpandVolume"),
    "crust.drive.v1.Drives": ("AttachDrive", "DetachDrive", "UpdateDriveLimits", "GetDrive"),
    "grpc.health.v1.Health": ("Check",),
}

SCALARS = {3: "int64", 4: "uint64", 5: "int32", 8: "bool", 9: "string", 13: "uint32"}  # FieldDescriptor's


def name_in_package(descriptor):
    return descriptor.full_name[len(descriptor.file.package) + 1:]


def type_of(field):
    named = field.message_type or field.enum_type
    name = name_in_package(named) if named else SCALARS[field.type]
    return f"repeated {name}" if field.label == field.LABEL_REPEATED else name


def all_messages(descriptors):
    for message in descriptors:
        yield message
        yield from all_messages(message.nested_types)


class Contract(GrpcTest):
    def test_messages(self):
        for file, expected in MESSAGES.items():
            descriptor = self.messages(file).DESCRIPTOR
            messages = list(all_messages(descriptor.message_types_by_name.values()))
            self.assertEqual({name_in_package(message): {field.name: (field.number, type_of(field))
                                                         for field in message.fields}
                              for message in messages}, expected)
            enums = [one for message in messages for one in message.enum_types]
            self.assertEqual({name_in_package(one): {value.name: value.number
                                                     for value in one.values}
                              for one in enums}, ENUMS[file])

    def test_every_method_is_there(self):
        """Whatever an empty message gets, it is not that there is no such method."""
        node = self.running_node()
        channel = self.channel(node)
        for service, methods in SERVICES.items():
            for method in methods:
                with self.subTest(service=service, method=method):
                    try:
                        channel.unary_unary(f"/{service}/{method}")(b"", timeout=SECONDS)
                    except grpc.RpcError as error:
                        self.assertEqual(error.code().name, "INVALID_ARGUMENT")
