//! Container images as OCI archives: a few JSON documents and the layers, named by their digests.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Dist, Result, at, create, read, remove, sums, write};

pub(super) struct Image<'a> {
    /// The archive's name.
    pub(super) name: String,
    /// The image's name and tag, for tools that load the archive.
    pub(super) reference: String,
    /// Uncompressed tar files, each with a description.
    pub(super) layers: Vec<(&'a Path, &'a str)>,
    /// The part of the configuration that a container is started with.
    pub(super) config: Value,
}

impl Image<'_> {
    /// Writes the archive.
    pub(super) fn write(&self, dist: &Dist) -> Result<()> {
        let layout = dist.stage.join("layout");
        remove(&layout)?;
        let time = ["--utc", "--date", &format!("@{}", dist.epoch), "+%Y-%m-%dT%H:%M:%SZ"];
        let time = read(Command::new("date").args(time))?;
        self.write_layout(&layout, time.trim())?;
        let file = dist.out.join(format!("{}.tar", self.name));
        dist.tar(&layout, ".", &file, &["--owner=0", "--group=0"])
    }

    fn write_layout(&self, layout: &Path, time: &str) -> Result<()> {
        let blobs = layout.join("blobs/sha256");
        create(&blobs)?;
        let mut layers = Vec::new();
        let mut history = Vec::new();
        let mut unpacked = Vec::new();
        for (tar, about) in &self.layers {
            let (digest, layer) = compress(tar, &blobs)?;
            unpacked.push(format!("sha256:{digest}"));
            layers.push(layer);
            history.push(json!({"created": time, "created_by": about}));
        }
        let config = json!({
            "created": time,
            "architecture": "amd64",
            "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": unpacked},
            "history": history,
        });
        let config = document(&blobs, "application/vnd.oci.image.config.v1+json", &config)?;
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": media_type,
            "config": config,
            "layers": layers,
        });
        let mut manifest = document(&blobs, media_type, &manifest)?;
        manifest["annotations"] = json!({"org.opencontainers.image.ref.name": self.reference});
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [manifest],
        });
        write(&layout.join("index.json"), index.to_string())?;
        write(&layout.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())
    }
}

/// Writes a document as a blob; returns its descriptor.
fn document(blobs: &Path, media_type: &str, document: &Value) -> Result<Value> {
    let content = document.to_string();
    let digest = sums::digest(content.as_bytes());
    write(&blobs.join(&digest), &content)?;
    Ok(descriptor(media_type, &digest, content.len() as u64))
}

fn descriptor(media_type: &str, digest: &str, size: u64) -> Value {
    json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size})
}

/// Writes a compressed layer as a blob; returns the digest of its content, and its descriptor.
fn compress(tar: &Path, blobs: &Path) -> Result<(String, Value)> {
    let partial = blobs.join("partial");
    let compressed = (|| {
        let mut content = File::open(tar)?;
        let mut digest = Sha256::new();
        let mut encoder = GzEncoder::new(File::create(&partial)?, Compression::default());
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = content.read(&mut buffer)?;
            let read = buffer.get(..count).unwrap_or_default();
            if read.is_empty() {
                break;
            }
            digest.update(read);
            encoder.write_all(read)?;
        }
        encoder.finish()?;
        Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    })();
    let digest: String = compressed.or_else(|error| at(tar, error))?;
    let blob = sums::digest_of(&partial)?;
    let size = partial.metadata().or_else(|error| at(&partial, error))?.len();
    std::fs::rename(&partial, blobs.join(&blob)).or_else(|error| at(&partial, error))?;
    Ok((digest, descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &blob, size)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_descriptor_of_a_layout_fits_its_blob() {
        let folder = tempfile::tempdir().unwrap();
        let tar = folder.path().join("layer.tar");
        std::fs::write(&tar, [7; 100_000]).unwrap();
        let layout = folder.path().join("layout");
        let layers = vec![(&*tar, "a layer")];
        let (name, reference) = ("one".into(), "one:1".into());
        let image = Image { name, reference, layers, config: json!({"User": "1"}) };
        image.write_layout(&layout, "2026-01-01T00:00:00Z").unwrap();
        let json = |path: &Path| -> Value {
            serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
        };
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            let path = layout.join("blobs/sha256").join(digest);
            assert_eq!(sums::digest_of(&path).unwrap(), digest);
            assert_eq!(descriptor["size"], path.metadata().unwrap().len());
            path
        };
        let index = json(&layout.join("index.json"));
        let named = &index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"];
        assert_eq!(named, "one:1");
        let manifest = json(&blob(&index["manifests"][0]));
        let config = json(&blob(&manifest["config"]));
        let mut layer = Vec::new();
        let compressed = File::open(blob(&manifest["layers"][0])).unwrap();
        flate2::read::GzDecoder::new(compressed).read_to_end(&mut layer).unwrap();
        assert_eq!(layer, [7; 100_000]);
        assert_eq!(
            config["rootfs"]["diff_ids"],
            json!([format!("sha256:{}", sums::digest(&layer))])
        );
        assert_eq!(config["config"], json!({"User": "1"}));
    }
}
