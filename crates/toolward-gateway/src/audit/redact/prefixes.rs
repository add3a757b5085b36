//! The prefixes that issuers give to their tokens.

use std::sync::LazyLock;

use hashbrown::HashMap;

/// Prefixes of tokens.
const BEGINNINGS: [&str; 148] = [
    // GitHub, GitLab, Bitbucket, Atlassian
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "gldt-",
    "glrt-",
    "glptt-",
    "glft-",
    "glsoat-",
    "glcbt-",
    "glagent-",
    "glimt-",
    "gloas-",
    "glffct-",
    "GR1348941",
    "sgp_",
    "ATBB",
    "ATATT3",
    "ATCTT3",
    // models
    "sk-",
    "gsk_",
    "xai-",
    "pplx-",
    "r8_",
    "hf_",
    "api_org_",
    "lsv2_pt_",
    "lsv2_sk_",
    "tvly-",
    "nvapi-",
    "csk-",
    "tgp_v1_",
    "pcsk_",
    "jina_",
    "bedrock-api-key-",
    // payments
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "rk_test_",
    "whsec_",
    "sq0atp-",
    "sq0csp-",
    "access_token$production$",
    "FLWSECK",
    "shippo_live_",
    "shippo_test_",
    "duffel_live_",
    "duffel_test_",
    "access-production-",
    "access-sandbox-",
    // chat and mail
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxr-",
    "xoxs-",
    "xoxe-",
    "xoxe.",
    "xoxc-",
    "xoxd-",
    "xapp-",
    "xwfp-",
    "SG.",
    "xkeysib-",
    "xsmtpsib-",
    "mlsn.",
    // packages
    "npm_",
    "pypi-",
    "rubygems_",
    "CLOJARS_",
    "dckr_pat_",
    "dckr_oat_",
    "AKCp",
    // clouds
    "ya29.",
    "1//0",
    "AIza",
    "GOCSPX-",
    "dop_v1_",
    "doo_v1_",
    "dor_v1_",
    "dapi",
    "LTAI",
    "fo1_",
    "fm1_",
    "fm2_",
    "FlyV1",
    "nfp_",
    "vercel_blob_rw_",
    "sha256~",
    "AQVN",
    "HRKU-",
    "sbp_",
    "sb_secret_",
    "pscale_tkn_",
    "pscale_pw_",
    "pscale_oauth_",
    "pul-",
    "tskey-",
    // secrets managers
    "hvs.",
    "hvb.",
    "hvr.",
    "dp.pt.",
    "dp.st.",
    "dp.ct.",
    "dp.sa.",
    "dp.scim.",
    "dp.audit.",
    "ops_",
    "AGE-SECRET-KEY-1",
    "AGE-SECRET-KEY-PQ-1",
    "age-secret-key-1",
    "age-secret-key-pq-1",
    // monitoring
    "glsa_",
    "glc_",
    "sntrys_",
    "sntryu_",
    "NRAK-",
    "NRJS-",
    "PMAK-",
    "NRII-",
    "dt0c01.",
    "dt0s01.",
    "eyJrIjoi",
    "phx_",
    "rdme_",
    "pnu_",
    // shops, design, notes
    "shpat_",
    "shpss_",
    "shpca_",
    "shppa_",
    "lin_api_",
    "lin_oauth_",
    "figd_",
    "figo_",
    "fio-u-",
    "CFPAT-",
    "dnkey-",
    "tfp_",
    "pat-na1-",
    "pat-eu1-",
    "p8e-",
    "sk.eyJ",
    "apify_api_",
    "ntn_",
    "secret_",
    "eyJhbGciOi",
];

/// Prefixes that ordinary words have, too.
const WORDS: [&str; 12] = [
    "dapi",
    "secret_",
    "ops_",
    "pul-",
    "api_org_",
    "access-production-",
    "access-sandbox-",
    "jina_",
    "csk-",
    "rdme_",
    "tfp_",
    "p8e-",
];

/// The known prefixes with the first character of a text.
pub(super) fn prefixes(text: &str) -> impl Iterator<Item = &'static str> {
    static BY_FIRST: LazyLock<HashMap<u8, Vec<&str>>> = LazyLock::new(|| {
        let mut by_first: HashMap<u8, Vec<&str>> = HashMap::new();
        for prefix in BEGINNINGS {
            by_first.entry(prefix.bytes().next().unwrap_or_default()).or_default().push(prefix);
        }
        by_first
    });
    let found = text.as_bytes().first().and_then(|first| BY_FIRST.get(first));
    found.into_iter().flatten().copied()
}

/// Whether ordinary words have the prefix, too.
pub(super) fn is_of_words(prefix: &str) -> bool {
    WORDS.contains(&prefix)
}
