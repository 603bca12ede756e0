"""Runs in an environment with boto3: creates a bucket and a user, or reads every object of a bucket."""

import base64
import json
import sys

import boto3

given = json.load(sys.stdin)


def client(name):
    key = {"aws_access_key_id": given.get("id", "any"), "aws_secret_access_key": given.get("secret", "any")}
    return boto3.client(name, endpoint_url=given["url"], region_name="us-east-1", **key)


if "make" in given:
    client("s3").create_bucket(Bucket=given["make"])
    iam = client("iam")
    iam.create_user(UserName="shipper")
    allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_user_policy(UserName="shipper", PolicyName="all", PolicyDocument=document)
    key = iam.create_access_key(UserName="shipper")["AccessKey"]
    answer = {"id": key["AccessKeyId"], "secret": key["SecretAccessKey"]}
else:
    s3 = client("s3")
    found = s3.list_objects_v2(Bucket=given["read"]).get("Contents", [])
    answer = {
        one["Key"]: base64.b64encode(s3.get_object(Bucket=given["read"], Key=one["Key"])["Body"].read()).decode()
        for one in found
    }
json.dump(answer, sys.stdout)
