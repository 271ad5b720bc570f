package rootfs

import "github.com/opencontainers/runtime-spec/specs-go"

// IDs are the mappings of the container's user namespace; empty means that it
// has none of its own, and ids are the host's.
type IDs struct{ UID, GID []specs.LinuxIDMapping }

// Mapped reports whether there is a user namespace.
func (m IDs) Mapped() bool { return len(m.UID) > 0 }

// HostUID translates an id of the container to the host's.
func (m IDs) HostUID(id uint32) (uint32, bool) { return hostID(m.UID, id) }

// HostGID translates a group.
func (m IDs) HostGID(id uint32) (uint32, bool) { return hostID(m.GID, id) }

func hostID(m []specs.LinuxIDMapping, id uint32) (uint32, bool) {
	if len(m) == 0 {
		return id, true
	}
	for _, e := range m {
		if id >= e.ContainerID && id-e.ContainerID < e.Size {
			return e.HostID + (id - e.ContainerID), true
		}
	}
	return 0, false
}
