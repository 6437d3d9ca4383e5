package ingest

// Limits bound what one image may cost the host while it is made. The bytes
// of an image are hostile: without bounds, a few kilobytes of compressed
// input can fill the disk or the memory of the host.
type Limits struct {
	// Bytes bounds the uncompressed size of all layers together, headers
	// and padding included; it also bounds the compressed input.
	Bytes int64
	// Entries bounds how many entries all layers have together, directories
	// that are only implied included.
	Entries int
	// Layers bounds the number of layers.
	Layers int
	// Depth and PathBytes bound one path, NameBytes one component of it.
	Depth     int
	PathBytes int
	NameBytes int
	// IndexBytes bounds the names and link targets held in memory.
	IndexBytes int64
	// ManifestBytes bounds each JSON document of an image.
	ManifestBytes int64
}

// DefaultLimits admit every ordinary image; a full desktop root file system
// has about a third of the entries.
func DefaultLimits() Limits {
	return Limits{
		Bytes:         8 << 30,
		Entries:       1_000_000,
		Layers:        256,
		Depth:         128,
		PathBytes:     2048, // with the stage's own path it must stay below PATH_MAX
		NameBytes:     255,
		IndexBytes:    256 << 20,
		ManifestBytes: 8 << 20,
	}
}

// or fills in the defaults for what is zero, so that a caller can set one
// limit alone.
func (l Limits) or(d Limits) Limits {
	set(&l.Bytes, d.Bytes)
	set(&l.Entries, d.Entries)
	set(&l.Layers, d.Layers)
	set(&l.Depth, d.Depth)
	set(&l.PathBytes, d.PathBytes)
	set(&l.NameBytes, d.NameBytes)
	set(&l.IndexBytes, d.IndexBytes)
	set(&l.ManifestBytes, d.ManifestBytes)
	return l
}

func set[T int | int64](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}
